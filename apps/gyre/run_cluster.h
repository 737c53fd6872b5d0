#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/gyre/remote.h"
#include "apps/gyre/run_command.h"

namespace gyre::app {

/// The options --cluster and those that go with it of `gyre run`: its ranks run on a cluster of a job server, as a job
/// that lasts as long as the command.
class RunCluster final : public JobCluster {
 public:
  void add_options(CLI::App& verb, const std::string& group) override;
  bool is_wanted() const override { return !cluster_.empty(); }
  int run(const ClusterJob& job, const std::vector<std::string>& environment) const override;

 private:
  int run_job(const ClusterJob& job, const std::vector<std::string>& environment) const;

  std::string cluster_;
  std::string code_ = ".";
  std::string requirements_;
  std::optional<int> cpus_per_node_;
  std::string memory_per_node_;
  std::string name_;
  std::vector<std::string> outputs_;
  Remote remote_;
};

}  // namespace gyre::app
