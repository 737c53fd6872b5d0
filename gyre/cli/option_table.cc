#include "gyre/cli/option_table.h"

#include <sstream>

namespace gyre::cli {

namespace {

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

/// CLI::IsMember writes them into the type's name: "TEXT:{flip,shift}".
std::vector<std::string> choices_of(const std::string& type_name) {
  std::vector<std::string> choices;
  const std::size_t open = type_name.find('{');
  const std::size_t close = type_name.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::istringstream list(type_name.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

nlohmann::ordered_json describe(const CLI::Option& option) {
  nlohmann::ordered_json described = {{"names", names_of(option)}, {"description", option.get_description()}};
  if (option.get_items_expected_max() == 0) return described;
  const std::string type_name = option.get_type_name();
  described["value"] = type_name.substr(0, type_name.find(':'));
  const std::vector<std::string> choices = choices_of(type_name);
  if (!choices.empty()) described["choices"] = choices;
  return described;
}

}  // namespace

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (std::string& name : names_of(*option)) names.push_back(std::move(name));
  }
  return names;
}

nlohmann::ordered_json option_table(const CLI::App& app) {
  nlohmann::ordered_json table = {{"description", app.get_description()},
                                  {"options", nlohmann::ordered_json::array()},
                                  {"verbs", nlohmann::ordered_json::object()}};
  for (const CLI::Option* option : app.get_options()) {
    const bool positional = option->get_lnames().empty() && option->get_snames().empty();
    if (!positional && !option->get_group().empty()) table["options"].push_back(describe(*option));
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    table["verbs"][verb->get_name()] = option_table(*verb);
  }
  return table;
}

}  // namespace gyre::cli
