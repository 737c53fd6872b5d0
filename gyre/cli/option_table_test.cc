// Shell completion offers what this table says; an option that it lacks would seem not to exist.
#include "gyre/cli/option_table.h"

#include <gtest/gtest.h>

namespace gyre::cli {
namespace {

TEST(option_table, options_have_their_names_values_and_choices_and_hidden_ones_are_left_out) {
  std::string text;
  bool flag = false;
  CLI::App app("A program.", "program");
  CLI::App* verb = app.add_subcommand("train", "Trains");
  verb->add_option("-a,--augment", text, "Change images")->check(CLI::IsMember({"flip", "shift"}));
  verb->add_option("--log-dir", text, "Logs")->type_name("DIR");
  verb->add_flag("--resume", flag, "Go on");
  verb->add_flag("--agent", flag)->group("");
  verb->add_option("SPECIFICATION", text, "A file");
  const nlohmann::ordered_json table = option_table(app).at("verbs").at("train");
  EXPECT_EQ(table.at("description"), "Trains");
  const auto& options = table.at("options");
  ASSERT_EQ(options.size(), 4);  // CLI11's own --help comes first.
  EXPECT_EQ(options[1].at("names"), nlohmann::json({"--augment", "-a"}));
  EXPECT_EQ(options[1].at("choices"), nlohmann::json({"flip", "shift"}));
  EXPECT_EQ(options[2].at("value"), "DIR");
  EXPECT_FALSE(options[2].contains("choices"));
  EXPECT_FALSE(options[3].contains("value"));
  EXPECT_EQ(options[3].at("description"), "Go on");
}

}  // namespace
}  // namespace gyre::cli
