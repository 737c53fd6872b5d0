// A mistyped word is the most frequent error of all: what is said about it must name the word and what was meant.
#include "gyre/cli/parse_error.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gyre::cli {
namespace {

std::string message_for(std::vector<std::string> words) {
  std::string folder;
  std::string state;
  int port = 0;
  CLI::App app("A program.", "program");
  app.add_option("--data-dir", folder, "Data")->type_name("DIR");
  app.add_option("--port", port, "Port");
  app.add_option("--state", state, "State")->check(CLI::IsMember({"queued", "running"}));
  std::ranges::reverse(words);  // CLI11 takes them from the back.
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return describe(error, app);
  }
  return {};
}

TEST(parse_error, names_a_mistyped_option_and_what_was_meant) {
  EXPECT_EQ(message_for({"--prot", "3"}), "unknown option --prot; did you mean --port?");
  EXPECT_EQ(message_for({"--prot=3"}), "unknown option --prot; did you mean --port?");
}

TEST(parse_error, names_the_first_word_that_is_too_many) {
  EXPECT_EQ(message_for({"one", "two"}), "unexpected argument 'one'");
}

TEST(parse_error, names_a_mistyped_choice_and_all_choices) {
  EXPECT_EQ(message_for({"--state", "qeued"}), "--state: 'qeued' is not one of queued, running; did you mean queued?");
  EXPECT_EQ(message_for({"--state", "x"}), "--state: 'x' is not one of queued, running");
}

TEST(parse_error, says_which_option_lacks_its_value) {
  EXPECT_EQ(message_for({"--data-dir"}), "--data-dir needs a value");
}

}  // namespace
}  // namespace gyre::cli
