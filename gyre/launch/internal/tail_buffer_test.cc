// The closing block shows the failed rank's last lines; keeping them must cost next to nothing.
#include "gyre/launch/internal/tail_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gyre::launch {
namespace {

TEST(tail_buffer, the_last_lines_are_kept_in_order) {
  TailBuffer tail;
  EXPECT_TRUE(tail.lines().empty());
  for (int i = 0; i < 100; ++i) tail.add("line " + std::to_string(i));
  ASSERT_EQ(tail.lines().size(), TailBuffer::kMostLines);
  EXPECT_EQ(tail.lines().front(), "line 85");
  EXPECT_EQ(tail.lines().back(), "line 99");
}

TEST(tail_buffer, a_long_line_is_shortened_and_says_so) {
  TailBuffer tail;
  tail.add(std::string(TailBuffer::kLongestLineBytes, 'x'));
  tail.add(std::string(TailBuffer::kLongestLineBytes + 17, 'x'));
  EXPECT_EQ(tail.lines().front().size(), TailBuffer::kLongestLineBytes);
  EXPECT_THAT(tail.lines().back(), testing::EndsWith("x … (17 bytes more)"));
}

TEST(tail_buffer, a_carriage_return_at_the_end_would_spoil_the_block_and_is_dropped) {
  TailBuffer tail;
  tail.add("from another system\r");
  EXPECT_EQ(tail.lines().back(), "from another system");
}

}  // namespace
}  // namespace gyre::launch
