#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/jobs/catalog/catalog.h"

namespace gyre::jobs::catalog {

/// A folder for one test's catalog.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gyre-catalog-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }
  std::filesystem::path file() const { return path_ / "catalog.db"; }

 private:
  std::filesystem::path path_;
};

inline const Cause kCause{"test", "for the test"};

/// One workspace with an experiment and a cluster of idle nodes.
struct Scene {
  Catalog& catalog;
  Workspace workspace{};
  Experiment experiment{};
  Cluster cluster{};
  std::vector<Id> nodes{};

  explicit Scene(Catalog& where, int node_count = 2) : catalog(where) {
    workspace = catalog.workspaces().create("w", "here");
    experiment = catalog.experiments().create(workspace.id, "e");
    cluster = catalog.clusters().create({.workspace = workspace.id, .name = "c", .spec = "{}", .scale = "{}"});
    catalog.clusters().change(cluster.id, ProvisioningState::kSucceeded, kCause);
    for (int i = 0; i < node_count; ++i) {
      nodes.push_back(catalog.nodes().plan(cluster.id, "n" + std::to_string(i), kCause).id);
      catalog.nodes().change(nodes.back(), NodeState::kPreparing, kCause);
      catalog.nodes().change(nodes.back(), NodeState::kIdle, kCause);
    }
  }
  Job submit(const std::string& name, std::vector<Secret> secrets = {}) const {
    return catalog.jobs().create({.experiment = experiment.id,
                                  .cluster = cluster.id,
                                  .name = name,
                                  .spec = "{\"nodeCount\":1}",
                                  .secrets = std::move(secrets)});
  }
  ExecutionState state_of(const Job& job) const { return catalog.jobs().get(job.id).execution_state; }
  NodeState state_of(Id node) const { return catalog.nodes().get(node).state; }
};

inline AttemptEnd succeeded() { return {.outcome = AttemptEnd::Outcome::kSucceeded, .exit_code = 0}; }
inline AttemptEnd failed(int exit_code) {
  return {.outcome = AttemptEnd::Outcome::kFailed,
          .exit_code = exit_code,
          .error = ResourceError{"JobFailed", "it failed"}};
}
inline AttemptEnd requeued() { return {.outcome = AttemptEnd::Outcome::kRequeued}; }

/// The error that `work` throws, for its code and its message.
template <typename Work>
Error error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "nothing was thrown"};
}

}  // namespace gyre::jobs::catalog
