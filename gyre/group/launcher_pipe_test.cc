// What a rank tells its launcher must never end up in another file that has got the descriptor's number meanwhile.
#include "gyre/group/launcher_pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace gyre::group {
namespace {

struct Ends {
  UniqueFd read;
  UniqueFd write;
};

Ends make_pipe(int flags) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | flags), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string read_from(const UniqueFd& pipe) {
  std::array<char, 256> text{};
  const ssize_t count = ::read(pipe.get(), text.data(), text.size());
  return count > 0 ? std::string(text.data(), static_cast<std::size_t>(count)) : std::string();
}

TEST(launcher_pipe, carries_a_line_for_each_thing_told_in_order) {
  const Ends ends = make_pipe(O_NONBLOCK);
  const auto pipe = LauncherPipe::inherited(ends.write.get());
  ASSERT_NE(pipe, nullptr);
  pipe->ends(2);
  pipe->left(2);
  pipe->failed(13);
  EXPECT_EQ(read_from(ends.read), "ends 2\nleft 2\nfailed 13\n");
}

TEST(launcher_pipe, a_descriptor_that_is_something_else_by_now_is_left_alone) {
  const Ends ordinary = make_pipe(0);
  EXPECT_EQ(LauncherPipe::inherited(ordinary.write.get()), nullptr);
  const Ends launchers = make_pipe(O_NONBLOCK);
  EXPECT_EQ(LauncherPipe::inherited(launchers.read.get()), nullptr);
  const UniqueFd file(::open("/dev/null", O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(LauncherPipe::inherited(file.get()), nullptr);
  constexpr int kNeverOpen = 1'000'000;
  EXPECT_EQ(LauncherPipe::inherited(kNeverOpen), nullptr);
}

TEST(launcher_pipe, a_launcher_that_does_not_read_holds_nobody_up) {
  const Ends ends = make_pipe(O_NONBLOCK);
  const auto pipe = LauncherPipe::inherited(ends.write.get());
  ASSERT_NE(pipe, nullptr);
  constexpr int kMoreThanAPipeHolds = 200'000;
  for (int i = 0; i < kMoreThanAPipeHolds; ++i) pipe->ends(1);
  EXPECT_TRUE(read_from(ends.read).starts_with("ends 1\nends 1\n"));
}

}  // namespace
}  // namespace gyre::group
