#include "apps/gyre/verb_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/gyre/run_command.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/suggest.h"

namespace gyre::app {

VerbGroup::VerbGroup(CLI::App& app, const std::string& name, const std::string& description,
                     const std::string& examples)
    : group_(app.add_subcommand(name, description)) {
  group_->footer("\nExamples:\n" + examples);
  group_->allow_extras();  // So that a mistyped verb gets a suggestion.
}

void VerbGroup::add(CLI::App* verb, Run run) {
  verb->allow_extras();  // So that a mistyped option gets a suggestion.
  verbs_.emplace_back(verb, std::move(run));
}

bool VerbGroup::has_verb(const std::string& word) const {
  const std::vector<std::string> known = names();
  return std::ranges::find(known, word) != known.end();
}

int VerbGroup::run(const std::vector<std::string>& environment) const {
  for (const auto& [verb, run] : verbs_) {
    if (!verb->parsed()) continue;
    const std::vector<std::string> extras = verb->remaining();
    if (extras.empty()) return run(environment);
    const std::string& first = extras.front();
    throw UsageError(first.starts_with('-') ? cli::no_such_option(first, cli::option_names(*verb))
                                            : fmt::format("unexpected argument '{}'", first));
  }
  const std::vector<std::string> words = group_->remaining();
  if (words.empty()) throw UsageError(fmt::format("name a verb: {}", fmt::join(names(), ", ")));
  const auto meant = cli::nearest(words.front(), names());
  throw UsageError(
      fmt::format("unknown command '{}'{}", words.front(), meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
}

std::vector<std::string> VerbGroup::names() const {
  std::vector<std::string> names;
  for (const CLI::App* verb : group_->get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

}  // namespace gyre::app
