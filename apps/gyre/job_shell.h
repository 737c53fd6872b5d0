#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/gyre/job_place.h"
#include "apps/gyre/verb_group.h"

namespace gyre::app {

/// The verb `gyre job shell`: a command in a job that runs (ADR 137).
class JobShell {
 public:
  explicit JobShell(VerbGroup& group);
  JobShell(const JobShell&) = delete;
  JobShell& operator=(const JobShell&) = delete;

  /// Keeps what stands behind "--"; returns what stands before it. Before the options are parsed.
  std::vector<std::string> take_command(const std::vector<std::string>& arguments);

 private:
  int run(const std::vector<std::string>& environment) const;
  int run_command(const std::vector<std::string>& environment) const;
  jobs::client::Query place() const;

  JobOptions job_{};
  std::string where_ = "0";
  bool terminal_ = false;
  bool no_terminal_ = false;
  std::vector<std::string> command_{};
};

}  // namespace gyre::app
