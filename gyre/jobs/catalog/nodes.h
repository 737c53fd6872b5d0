#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

class Nodes {
 public:
  explicit Nodes(Store& store) : store_(store) {}

  /// Writes down that a node of this name, never used before, is to be allocated.
  Node plan(Id cluster, const std::string& name, const Cause& cause);
  /// The node of that name; where there is none, a new idle one, with that number if it is free.
  Node adopt(Id cluster, const AttemptNode& node, const Cause& cause);
  /// Error(kNotFound) when it does not exist.
  Node get(Id id);
  std::optional<Node> find(std::string_view name);
  /// All of a cluster; of all clusters without one.
  std::vector<Node> list(std::optional<Id> cluster = std::nullopt);

  /// To the state that it already has: no change. Nodes become `running`, and stop to be, only through their attempts.
  /// Where the new state is `unusable` or `lost` the cause's message becomes the node's problem.
  void change(Id id, NodeState to, const Cause& cause);
  /// It is gone: it was `leaving` or `lost`, or could not be allocated. Its attempt, if it has one, must have ended.
  void remove(Id id, const Cause& cause);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
