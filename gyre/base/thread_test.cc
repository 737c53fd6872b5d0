// Containers limit processes: a program that may start no more threads should say so, not show an errno.
#include "gyre/base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/base/thread_test_support.h"

namespace gyre {
namespace {

TEST(ThreadTest, runs_what_it_was_given) {
  bool ran = false;
  start_thread("a test", [&] { ran = true; }).join();
  EXPECT_TRUE(ran);
}

TEST(ThreadTest, says_for_what_there_was_no_thread) {
  const NoThreads limit;
  try {
    start_thread("a test", [] {}).join();
    FAIL() << "the limit did not work";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), testing::HasSubstr("no thread for a test"));
  }
}

}  // namespace
}  // namespace gyre
