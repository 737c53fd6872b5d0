#include "gyre/base/pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "gyre/base/error.h"

namespace gyre {
namespace {

TEST(Pipe, is_left_to_no_program_that_is_started) {
  const Pipe pipe = make_pipe();
  EXPECT_EQ(::fcntl(pipe.read.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(pipe.write.get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(pipe.read.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Pipe, says_what_it_is_for_where_no_descriptors_are_left) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string words;
  try {
    make_pipe("a pipe for the page");
  } catch (const Error& error) {
    words = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(words, "cannot make a pipe for the page: Too many open files");
}

}  // namespace
}  // namespace gyre
