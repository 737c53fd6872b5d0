#include "apps/gyre/verb_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/gyre/run_command.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/suggest.h"

namespace gyre::app {

namespace {

/// For the help of verbs that have no explanation of their own.
struct Example {
  std::string_view verb;
  std::string_view text;
};

constexpr std::array kExamples = {
    Example{"cluster list", "gyre cluster list -w vision"},
    Example{"cluster show", "gyre cluster show pool"},
    Example{"cluster nodes", "gyre cluster nodes pool"},
    Example{"cluster delete", "gyre cluster delete pool -y"},
    Example{"workspace create", "gyre workspace create vision"},
    Example{"workspace list", "gyre workspace list"},
    Example{"workspace show", "gyre workspace show vision"},
    Example{"workspace delete", "gyre workspace delete vision -y"},
    Example{"workspace owners", "gyre workspace owners vision"},
    Example{"workspace add-owner", "gyre workspace add-owner vision ada"},
    Example{"workspace remove-owner", "gyre workspace remove-owner vision ada"},
    Example{"workspace quota", "gyre workspace quota vision --cores 64"},
    Example{"experiment create", "gyre experiment create baseline"},
    Example{"experiment list", "gyre experiment list -w vision"},
    Example{"experiment show", "gyre experiment show baseline"},
    Example{"experiment delete", "gyre experiment delete baseline -y"},
    Example{"user create", "gyre user create ada\n  gyre user create ada --to ada.json"},
    Example{"user change", "gyre user change ada --account ada-lovelace"},
    Example{"user renew-token", "gyre user renew-token ada --to ada.json"},
    Example{"user list", "gyre user list"},
    Example{"user delete", "gyre user delete ada -y"},
    Example{"job list", "gyre job list --state running"},
    Example{"job show", "gyre job show train-1"},
    Example{"job why", "gyre job why train-1"},
    Example{"job events", "gyre job events train-1"},
};

}  // namespace

VerbGroup::VerbGroup(CLI::App& app, const std::string& name, const std::string& description,
                     const std::string& examples)
    : group_(app.add_subcommand(name, description)) {
  group_->footer("\nExamples:\n" + examples);
  group_->allow_extras();  // So that a mistyped verb gets a suggestion.
}

void VerbGroup::add(CLI::App* verb, Run run) {
  verb->allow_extras();                              // So that a mistyped option gets a suggestion.
  if (verb->get_footer() == group_->get_footer()) {  // It has got the examples of the other verbs.
    const std::string name = group_->get_name() + " " + verb->get_name();
    const auto* own = std::ranges::find(kExamples, name, &Example::verb);
    verb->footer(own == kExamples.end() ? std::string() : fmt::format("\nExamples:\n  {}", own->text));
  }
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
