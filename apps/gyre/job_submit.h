#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/gyre/remote.h"
#include "apps/gyre/verb_group.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::app {

/// The verb `gyre job submit`.
class JobSubmit {
 public:
  explicit JobSubmit(VerbGroup& group);
  JobSubmit(const JobSubmit&) = delete;
  JobSubmit& operator=(const JobSubmit&) = delete;

  /// Keeps what stands behind "--"; returns what stands before it. Before the options are parsed.
  std::vector<std::string> take_command(const std::vector<std::string>& arguments);

 private:
  int run(const std::vector<std::string>& environment);
  int submit(jobs::spec::JobSpec& spec, const std::vector<std::string>& environment) const;
  jobs::spec::JobSpec spec_of_command() const;
  /// Nothing where the file is wrong; its problems were shown.
  std::optional<jobs::spec::JobSpec> spec_of_file(const std::vector<std::string>& environment) const;
  void add_resource_options();
  void check_code(const jobs::spec::JobSpec& spec) const;
  void apply_options(jobs::spec::JobSpec& spec, const std::vector<std::string>& environment) const;
  std::string cluster_of(jobs::client::Session& session, const jobs::spec::JobSpec& spec,
                         const std::string& workspace) const;

  CLI::App* verb_;
  Remote remote_;
  std::string file_;
  std::vector<std::string> rest_;  ///< What comes after FILE: a command without its `--`.
  std::string name_;
  std::string experiment_;
  std::string cluster_;
  std::optional<int> nodes_;
  std::optional<int> gpus_per_node_;
  bool timeline_ = false;
  std::optional<int> cpus_per_node_;
  std::string memory_per_node_;
  std::optional<int> processes_;
  std::optional<int> restarts_;
  std::optional<int> retries_;
  std::optional<int> servers_;
  std::string preparation_;
  std::string requirements_;
  std::vector<std::string> variables_;
  std::vector<std::string> secrets_;
  std::string code_;
  std::vector<std::string> outputs_;
  std::string logs_;
  std::string priority_;
  std::string time_limit_;
  bool strict_ = false;
  bool follow_ = false;
  bool has_command_ = false;
  std::vector<std::string> command_;
};

}  // namespace gyre::app
