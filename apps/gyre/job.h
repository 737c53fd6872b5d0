#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/gyre/job_run.h"
#include "apps/gyre/job_validate.h"

namespace gyre::app {

/// The verbs `gyre job …`; each stands in a file of its own.
class JobCommand {
 public:
  explicit JobCommand(CLI::App& app);

  /// Whether `gyre job WORD` is one of them.
  bool has_verb(const std::string& word) const;

  /// After the options were parsed: runs the verb that was given. Returns the exit code. UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment) const;

 private:
  std::vector<std::string> verbs() const;

  CLI::App* group_;
  JobRun run_;
  JobValidate validate_;
};

}  // namespace gyre::app
