// A renamed option must keep every script that uses its former name.
#include "gyre/cli/program_options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gyre/base/parse.h"

namespace gyre::cli {
namespace {

const FormerNames kFormerNames = {{"--model-dir", "--output-dir"}, {"--n-epochs", "--epochs"}};

struct Parsed {
  std::optional<int> ended;
  std::string output_dir;
  int epochs = 0;
  std::vector<std::string> others;
};

Parsed parse(std::vector<const char*> words) {
  Parsed parsed;
  CLI::App app("Trains.", "train");
  app.add_option("--output-dir", parsed.output_dir);
  app.add_option("--epochs", parsed.epochs);
  app.add_option_function<std::string>(
      "--size", [](const std::string& text) { parse_integer(text, "--size", 1, 9); }, "");
  app.add_option("others", parsed.others);
  words.insert(words.begin(), "train");
  parsed.ended = parse_program_options(app, static_cast<int>(words.size()), words.data(), kFormerNames, [] {});
  return parsed;
}

TEST(program_options, a_former_name_means_the_present_one) {
  for (const auto& words : {std::vector<const char*>{"--model-dir", "out", "--n-epochs", "3"},
                            {"--model-dir=out", "--n-epochs=3"},
                            {"--output-dir", "out", "--epochs=3"},
                            {"--epochs", "3", "--model-dir", "out"}}) {
    const Parsed parsed = parse(words);
    EXPECT_FALSE(parsed.ended);
    EXPECT_EQ(parsed.output_dir, "out");
    EXPECT_EQ(parsed.epochs, 3);
  }
}

TEST(program_options, words_behind_two_dashes_are_no_options) {
  const Parsed parsed = parse({"a", "--", "--model-dir", "--n-epochs=3"});
  EXPECT_FALSE(parsed.ended);
  EXPECT_EQ(parsed.others, (std::vector<std::string>{"a", "--model-dir", "--n-epochs=3"}));
}

TEST(program_options, the_same_option_under_both_names_is_refused) {
  testing::internal::CaptureStderr();
  const Parsed parsed = parse({"--epochs", "3", "--n-epochs", "4"});
  EXPECT_EQ(parsed.ended, 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--epochs"), std::string::npos);
}

TEST(program_options, a_misspelt_former_name_is_an_unknown_option) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"--model-dirs", "out"}).ended, 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("unknown option --model-dirs"), std::string::npos);
}

TEST(program_options, an_error_in_reading_a_value_is_a_mistake_of_usage) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"--size", "10"}).ended, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "train: --size is '10'; a whole number from 1 to 9 is needed\nSee `train --help`.\n");
}

}  // namespace
}  // namespace gyre::cli
