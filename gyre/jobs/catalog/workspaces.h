#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

class Workspaces {
 public:
  explicit Workspaces(Store& store) : store_(store) {}

  /// The name must be free.
  Workspace create(const std::string& name, const std::string& location);
  std::optional<Workspace> find(std::string_view name);
  /// Error(kNotFound) when it does not exist.
  Workspace get(Id id);
  Page<Workspace> list(const PageRequest& request = {});
  /// The same as before: no change.
  void set_quotas(Id id, const Quotas& quotas, const Cause& cause);
  /// It must have no clusters and no experiments any more.
  void remove(Id id);

 private:
  Store& store_;
};

class Experiments {
 public:
  explicit Experiments(Store& store) : store_(store) {}

  /// The name must be free in its workspace.
  Experiment create(Id workspace, const std::string& name);
  std::optional<Experiment> find(Id workspace, std::string_view name);
  /// Error(kNotFound) when it does not exist.
  Experiment get(Id id);
  Page<Experiment> list(Id workspace, const PageRequest& request = {});
  /// It must have no jobs any more.
  void remove(Id id);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
