#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/gyre/job_place.h"

namespace gyre::app {

/// `gyre top FILE` and `gyre top JOB`
class TopCommand {
 public:
  explicit TopCommand(CLI::App& app);
  int run(const std::vector<std::string>& environment) const;

 private:
  bool is_file(const std::vector<std::string>& environment) const;
  int watch_file() const;

  JobOptions job_{};  ///< job_.job may be a file.
  bool once_ = false;
};

}  // namespace gyre::app
