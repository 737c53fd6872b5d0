// `-o yaml` must mean to a reader of YAML what `-o json` means to one of JSON.
#include "gyre/cli/yaml.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

namespace gyre::cli {
namespace {

using nlohmann::json;

/// As a reader of YAML sees it; plain scalars by the rules of YAML's core schema.
json read_back(const YAML::Node& node) {
  if (node.IsMap()) {
    json object = json::object();
    for (const auto& entry : node) object[entry.first.as<std::string>()] = read_back(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    json list = json::array();
    for (const auto& item : node) list.push_back(read_back(item));
    return list;
  }
  std::string text = node.as<std::string>();
  if (node.Tag() == "!") return text;  // In quotes.
  const json scalar = json::parse(text, nullptr, false);
  return scalar.is_discarded() ? json(text) : scalar;
}

TEST(YamlTest, is_in_blocks_that_people_can_read) {
  const json value = {{"name", "job-1"},
                      {"nodes", json::array({{{"id", 1}, {"state", "idle"}}, {{"id", 2}}})},
                      {"empty", json::array()}};
  EXPECT_EQ(to_yaml(value), "empty: []\nname: job-1\nnodes:\n- id: 1\n  state: idle\n- id: 2\n");
}

TEST(YamlTest, every_value_is_read_back_as_it_was) {
  const json value = {{"true", "true"},
                      {"number", "1"},
                      {"no", "no"},
                      {"text", "a: b # c"},
                      {"lines", "one\ntwo\n"},
                      {"control", "\x1b[31m\xc2\x85"},
                      {"nothing", nullptr},
                      {"empty", ""},
                      {"dash", "- x"},
                      {"real", 0.5},
                      {"nested", {{"list", json::array({json::array({1, 2}), json::object(), "x", nullptr, false})}}},
                      {"deep", json::array({json::array({json::array({"a", "b"})})})},
                      {"key with: colon", "~"}};
  EXPECT_EQ(read_back(YAML::Load(to_yaml(value))), value) << to_yaml(value);
}

TEST(YamlTest, a_scalar_or_an_empty_list_is_one_line) {
  EXPECT_EQ(to_yaml("x"), "x\n");
  EXPECT_EQ(to_yaml(json::array()), "[]\n");
}

}  // namespace
}  // namespace gyre::cli
