#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/spec/cluster_spec.h"

namespace gyre::app {

/// The verb `gyre job run`: a service of this machine for as long as one job lives.
class JobRun {
 public:
  explicit JobRun(CLI::App& group);

  CLI::App* verb() const { return verb_; }

  /// Returns the job's exit code. UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment) const;

 private:
  std::optional<jobs::spec::ClusterSpec> cluster_of_file(const std::vector<std::string>& environment) const;

  CLI::App* verb_;
  std::string file_;
  std::vector<std::string> mounts_;
  std::string cluster_;
  std::string code_;
  std::vector<std::string> outputs_;
  std::string folder_;
  std::string name_;
  std::string job_user_ = "nobody";
  bool quiet_ = false;
};

}  // namespace gyre::app
