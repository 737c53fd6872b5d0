#include "apps/gyre/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/gyre/run_command.h"
#include "gyre/cli/suggest.h"

namespace gyre::app {

JobCommand::JobCommand(CLI::App& app)
    : group_(app.add_subcommand("job", "Check and run job files")), run_(*group_), validate_(*group_) {
  group_->footer(
      "\nExamples:\n  gyre job run job.json --mount external=/data/share\n  gyre job validate job.json\n  gyre job "
      "validate --help");
  group_->allow_extras();  // So that a mistyped verb gets a suggestion.
}

bool JobCommand::has_verb(const std::string& word) const {
  const std::vector<std::string> known = verbs();
  return std::ranges::find(known, word) != known.end();
}

int JobCommand::run(const std::vector<std::string>& environment) const {
  if (run_.given()) return run_.run(environment);
  if (validate_.given()) return validate_.run(environment);
  const std::vector<std::string> words = group_->remaining();
  if (words.empty()) throw UsageError(fmt::format("name a verb: {}", fmt::join(verbs(), ", ")));
  const auto meant = cli::nearest(words.front(), verbs());
  throw UsageError(
      fmt::format("there is no verb '{}'{}", words.front(), meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
}

std::vector<std::string> JobCommand::verbs() const {
  std::vector<std::string> names;
  for (const CLI::App* verb : group_->get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

}  // namespace gyre::app
