// Flags and variables typed by people: what is taken, and that the message for the rest names the variable and the
// range.
#include "gyre/base/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>

#include "gyre/base/error.h"

namespace gyre {
namespace {

using testing::ElementsAre;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(parse, integers_within_their_range_are_taken) {
  EXPECT_EQ(parse_integer("0", "x", 0, 7), 0);
  EXPECT_EQ(parse_integer("-5", "x", -5, 7), -5);
  EXPECT_EQ(parse_integer("9223372036854775807", "x", 0, std::numeric_limits<std::int64_t>::max()),
            std::numeric_limits<std::int64_t>::max());
}

TEST(parse, everything_else_is_refused_as_an_integer) {
  for (const char* text : {"", " 1", "1 ", "+1", "8", "-1", "1.0", "0x1", "99999999999999999999", "one"}) {
    EXPECT_EQ(refusal([&] { parse_integer(text, "GYRE_RANK", 0, 7); }),
              "GYRE_RANK is '" + std::string(text) + "'; a whole number from 0 to 7 is needed");
  }
}

TEST(parse, sizes_have_suffixes_of_powers_of_1024) {
  EXPECT_EQ(parse_bytes("0", "x"), 0U);
  EXPECT_EQ(parse_bytes("1048576", "x"), 1U << 20);
  EXPECT_EQ(parse_bytes("7B", "x"), 7U);
  EXPECT_EQ(parse_bytes("64MB", "x"), 64U << 20);
  EXPECT_EQ(parse_bytes("256 kb", "x"), 256U << 10);
  EXPECT_EQ(parse_bytes("3G", "x"), std::uint64_t{3} << 30);
  EXPECT_EQ(parse_bytes("2tb", "x"), std::uint64_t{2} << 40);
}

TEST(parse, sizes_that_mean_nothing_or_overflow_are_refused) {
  for (const char* text : {"", "MB", "-1", "1.5MB", "64BB", "64MBB", "64XB", "64MiB", "16777217TB", "0x10", "6 4M"}) {
    EXPECT_THAT(refusal([&] { parse_bytes(text, "--fusion"); }), testing::HasSubstr("--fusion is '")) << text;
  }
  EXPECT_EQ(parse_bytes("16777215TB", "x"), std::uint64_t{16777215} << 40);
}

TEST(parse, truth_has_four_words_on_each_side) {
  for (const char* text : {"1", "true", "on", "yes"}) EXPECT_TRUE(parse_bool(text, "x"));
  for (const char* text : {"0", "false", "off", "no"}) EXPECT_FALSE(parse_bool(text, "x"));
  EXPECT_EQ(refusal([] { parse_bool("maybe", "GYRE_X"); }), "GYRE_X is 'maybe'; true or false is needed");
  EXPECT_NE(refusal([] { parse_bool("", "GYRE_X"); }), "accepted");
}

TEST(parse, a_split_keeps_empty_parts) {
  EXPECT_THAT(split("a:b::c", ':'), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("", ':'), ElementsAre(""));
  EXPECT_THAT(split(":", ':'), ElementsAre("", ""));
}

TEST(parse, an_empty_environment_variable_counts_as_unset) {
  ::setenv("GYRE_PARSE_TEST", "", 1);
  EXPECT_EQ(environment_variable("GYRE_PARSE_TEST"), std::nullopt);
  ::setenv("GYRE_PARSE_TEST", "x", 1);
  EXPECT_EQ(environment_variable("GYRE_PARSE_TEST"), "x");
  ::unsetenv("GYRE_PARSE_TEST");
  EXPECT_EQ(environment_variable("GYRE_PARSE_TEST"), std::nullopt);
}

}  // namespace
}  // namespace gyre
