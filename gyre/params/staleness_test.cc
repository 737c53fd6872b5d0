#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gyre/params/server.h"

namespace gyre::params {
namespace {

TEST(Staleness, is_a_line_for_each_value) {
  EXPECT_EQ(describe_staleness({{0, 10}, {2, 5}}),
            "staleness of 15 updates: 0.67 on average, at most 2\n"
            "          0          10  ########################################\n"
            "          1           0\n"
            "          2           5  ####################\n");
  EXPECT_EQ(describe_staleness({}), "");
}

TEST(Staleness, many_values_share_lines) {
  const std::string text = describe_staleness({{0, 1}, {100, 1}});
  EXPECT_THAT(text, testing::HasSubstr("  0-8  "));
  EXPECT_THAT(text, testing::HasSubstr("99-107  "));
  EXPECT_EQ(std::ranges::count(text, '\n'), 13);
}

}  // namespace
}  // namespace gyre::params
