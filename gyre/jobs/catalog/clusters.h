#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

class Clusters {
 public:
  explicit Clusters(Store& store) : store_(store) {}

  /// The name must be free in its workspace. It is `creating`.
  Cluster create(const NewCluster& cluster);
  std::optional<Cluster> find(Id workspace, std::string_view name);
  /// Error(kNotFound) when it does not exist.
  Cluster get(Id id);
  Page<Cluster> list(Id workspace, const PageRequest& request = {});
  /// Of all workspaces.
  Page<Cluster> list_all(const PageRequest& request = {});

  /// Of all workspaces.
  std::vector<Cluster> deleting();

  void set_scale(Id id, const std::string& scale, const Cause& cause);
  /// To the state that it already has: no change.
  void change(Id id, ProvisioningState to, const Cause& cause);
  void change(Id id, AllocationState to, const Cause& cause);
  /// It must be `deleting` and have no nodes, and no jobs that have not finished, any more. Where others ran on it
  /// get() knows it until the last of them is removed; nothing else does.
  void remove(Id id);

  /// For node programs only.
  std::vector<Secret> secrets(Id id);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
