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
  int depth = 0;
  std::uint64_t epochs = 0;
  double share = 0;
  CLI::App app("A program.", "program");
  app.add_option("--data-dir", folder, "Data")->type_name("DIR");
  app.add_option("--port", port, "Port");
  app.add_option("--state", state, "State")->check(CLI::IsMember({"queued", "running"}));
  app.add_option("--depth", depth, "Depth")->check(CLI::IsMember({14, 50}));
  app.add_option("--epochs", epochs, "Epochs")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--share", share, "Share")->check(CLI::Range(0.0, 1.0));
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

TEST(parse_error, names_the_option_what_was_given_and_what_is_expected) {
  EXPECT_EQ(message_for({"--epochs", "ten"}), "--epochs: 'ten' is not a whole number from 1 to 1000");
  EXPECT_EQ(message_for({"--epochs", "1.5"}), "--epochs: '1.5' is not a whole number from 1 to 1000");
  EXPECT_EQ(message_for({"--epochs", "0"}), "--epochs: '0' is not a whole number from 1 to 1000");
  EXPECT_EQ(message_for({"--epochs", "not in range"}), "--epochs: 'not in range' is not a whole number from 1 to 1000");
  EXPECT_EQ(message_for({"--share", "half"}), "--share: 'half' is not a number from 0 to 1");
  EXPECT_EQ(message_for({"--port", "ten"}), "--port: 'ten' is not a whole number");
  EXPECT_EQ(message_for({"--depth", "x"}), "--depth: 'x' is not one of 14, 50");
  EXPECT_EQ(message_for({"--depth", "15"}), "--depth: '15' is not one of 14, 50; did you mean 14?");
}

TEST(parse_error, says_which_option_lacks_its_value) {
  EXPECT_EQ(message_for({"--data-dir"}), "--data-dir needs a value");
}

TEST(parse_error, says_which_option_comes_again) {
  EXPECT_EQ(message_for({"--port", "1", "--port", "2"}), "--port is given twice");
  EXPECT_EQ(message_for({"--port", "1", "--port=2", "--port=2"}), "--port is given more than once");
}

}  // namespace
}  // namespace gyre::cli
