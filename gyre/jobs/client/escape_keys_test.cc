// The keys that lead out of a terminal are found wherever reads cut them, and cost no other key.

#include "gyre/jobs/client/escape_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::client {
namespace {

struct Case {
  std::string_view typed;
  std::string_view passed;
  bool leaves;
};

const std::vector<Case> kCases = {
    {"~.", "", true},        {"ls\r~.more", "ls\r", true}, {"ls\n~.", "ls\n", true},
    {"a~.b", "a~.b", false}, {"~~.", "~.", false},         {"\r~~~.", "\r~~.", false},
    {"~x\r", "~x\r", false}, {"~\r~.", "~\r", true},       {"\r\r~", "\r\r~", false},
    {"", "", false},
};

TEST(EscapeKeysTest, only_the_escape_and_a_dot_at_a_lines_beginning_leave) {
  for (const Case& expected : kCases) {
    EscapeKeys keys('~');
    std::string passed = keys.pass(expected.typed);
    passed += keys.rest();
    EXPECT_EQ(passed, expected.passed) << expected.typed;
    EXPECT_EQ(keys.leaves(), expected.leaves) << expected.typed;
  }
}

TEST(EscapeKeysTest, reads_may_cut_what_is_typed_anywhere) {
  for (const Case& expected : kCases) {
    EscapeKeys keys('~');
    std::string passed;
    for (const char key : expected.typed) passed += keys.pass(std::string_view(&key, 1));
    passed += keys.rest();
    EXPECT_EQ(passed, expected.passed) << expected.typed;
    EXPECT_EQ(keys.leaves(), expected.leaves) << expected.typed;
  }
}

TEST(EscapeKeysTest, another_character_can_be_the_escape) {
  EscapeKeys keys('%');
  EXPECT_EQ(keys.pass("~.\r"), "~.\r");
  EXPECT_EQ(keys.pass("%."), "");
  EXPECT_TRUE(keys.leaves());
}

}  // namespace
}  // namespace gyre::jobs::client
