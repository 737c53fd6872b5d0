#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/gyre/job_place.h"
#include "apps/gyre/verb_group.h"
#include "gyre/jobs/resources/job_end.h"

namespace gyre::app {

/// The verb `gyre job shell`: a command in a job that runs (ADR 137).
class JobShell {
 public:
  static constexpr const char* kVerb = "gyre job shell";
  /// Whatever the command has not ended with, so that nobody takes it for the command's.
  static constexpr int kOursExitCode = jobs::resources::kNotTheJobsExitCode;

  explicit JobShell(VerbGroup& group);
  JobShell(const JobShell&) = delete;
  JobShell& operator=(const JobShell&) = delete;

  /// Keeps what stands behind "--"; returns what stands before it. Before the options are parsed.
  std::vector<std::string> take_command(const std::vector<std::string>& arguments);

  /// Behind a mistake that a command without "--" may be; empty where that was given.
  std::string hint() const;

 private:
  int run(const std::vector<std::string>& environment) const;
  int run_command(const std::vector<std::string>& environment) const;
  jobs::client::Query place() const;
  std::optional<char> escape() const;

  JobOptions job_{};
  std::string where_ = "0";
  bool terminal_ = false;
  bool no_terminal_ = false;
  std::string escape_ = "~";
  std::vector<std::string> command_{};
  bool has_dashes_ = false;
};

}  // namespace gyre::app
