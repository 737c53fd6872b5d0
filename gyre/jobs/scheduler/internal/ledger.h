#pragma once

#include <map>
#include <optional>
#include <vector>

#include "gyre/jobs/scheduler/line.h"
#include "gyre/jobs/scheduler/state.h"

namespace gyre::jobs::scheduler {

/// What a job takes while it runs.
struct Demand {
  ClusterId cluster = 0;
  int nodes = 0;
  std::optional<std::size_t> quota{};  ///< Index into State::quotas, where one applies.
  int cores = 0;                       ///< Of that quota.

  bool shares_nodes(const Demand& other) const { return cluster == other.cluster; }
  bool shares_quota(const Demand& other) const { return quota && quota == other.quota; }
};

/// A demand that is being met, until `end`; nobody knows until when where that is unset.
struct Hold {
  JobId job = 0;
  Demand demand{};
  std::optional<Time> end{};
};

/// The nodes of one cluster.
struct NodeCounts {
  std::vector<NodeId> idle{};  ///< Ascending.
  std::vector<NodeId> preparing{};
  std::vector<NodeId> unusable{};
  int busy = 0;
  int leaving = 0;
  int to_come = 0;   ///< To be allocated by a decision of this pass.
  int to_leave = 0;  ///< Of the busy ones: to be released as soon as their jobs have ended.

  /// All that counts towards the cluster's target.
  int members() const { return static_cast<int>(idle.size() + preparing.size() + unusable.size()) + busy; }
};

/// Who holds what, during one pass over a State and a Line. Both must outlive it.
class Ledger {
 public:
  Ledger(const State& state, const Line& line);

  const State& state() const { return state_; }
  const Line& line() const { return line_; }
  /// Null when the cluster does not exist.
  const Cluster* cluster(ClusterId id) const;
  /// The job's cluster must exist.
  Demand demand_of(const Job& job) const;

  NodeCounts& nodes(ClusterId id) { return nodes_[id]; }
  const NodeCounts& nodes(ClusterId id) const { return nodes_.at(id); }
  const std::vector<Hold>& holds() const { return holds_; }
  int cores_left(std::size_t quota) const { return cores_left_[quota]; }

  bool fits_now(const Demand& demand) const;
  /// Takes the first idle nodes. The demand must fit.
  std::vector<NodeId> take(JobId job, const Demand& demand, Time end);
  /// From now on the job's nodes may come back at any moment.
  void mark_ending(JobId job);

 private:
  void add_node(const Node& node, bool busy);
  void add_running(const RunningJob& running, const std::map<NodeId, NodeReadiness>& states);

  const State& state_;
  const Line& line_;
  std::map<ClusterId, const Cluster*> clusters_;
  std::map<ClusterId, NodeCounts> nodes_;
  std::vector<Hold> holds_{};
  std::vector<int> cores_left_{};
};

}  // namespace gyre::jobs::scheduler
