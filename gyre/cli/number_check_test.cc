// A wrong number is an everyday mistake: its message must be one line that a person can read.
#include "gyre/cli/number_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace gyre::cli {
namespace {

std::string message_for(const std::string& value) {
  std::optional<int> nodes;
  CLI::App app("A program.", "program");
  app.add_option("--nodes", nodes, "How many")->type_name("N")->check(whole_number_from(1));
  try {
    app.parse("--nodes " + value);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return {};
}

TEST(number_check, whole_numbers_from_the_lowest_on_are_taken) {
  EXPECT_EQ(message_for("1"), "");
  EXPECT_EQ(message_for("4096"), "");
}

TEST(number_check, others_are_named_with_what_is_wanted_and_nothing_else) {
  for (const std::string value : {"0", "-1", "1.5", "two", "1x"}) {
    EXPECT_EQ(message_for(value), "--nodes: '" + value + "' is not a whole number of 1 or more");
  }
}

TEST(number_check, a_sign_before_an_unsigned_number_is_refused) {
  // -1 was the seed 18446744073709551615.
  EXPECT_EQ(check_unsigned("-1"), "'-1' is not a whole number of 0 or more");
  EXPECT_EQ(check_unsigned("18446744073709551615"), "");
}

TEST(number_check, help_shows_the_options_own_name_for_its_value) {
  int nodes = 0;
  CLI::App app("A program.", "program");
  app.add_option("--nodes", nodes, "How many")->type_name("N")->check(whole_number_from(1));
  EXPECT_THAT(app.help(), ::testing::HasSubstr("--nodes N "));
}

}  // namespace
}  // namespace gyre::cli
