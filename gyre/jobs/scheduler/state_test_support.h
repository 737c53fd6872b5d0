#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/jobs/scheduler/decide.h"

namespace gyre::jobs::scheduler {

/// A State that tests build up by hand. Clusters and nodes are numbered from 1, and so are jobs, in the order in which
/// they come.
struct World {
  State state{};

  explicit World(int ready_nodes = 0, Cluster cluster = {}) {
    cluster.id = 1;
    cluster.name = "c1";
    if (auto* manual = std::get_if<ManualScale>(&cluster.scale); manual != nullptr && manual->target_node_count == 0) {
      manual->target_node_count = ready_nodes;
    }
    state.clusters.push_back(cluster);
    add_nodes(1, ready_nodes);
  }

  Cluster& cluster(ClusterId id = 1) { return *std::ranges::find(state.clusters, id, &Cluster::id); }
  Node& node(NodeId id) { return *std::ranges::find(state.nodes, id, &Node::id); }

  ClusterId add_cluster(int ready_nodes, int cores_per_node = 1) {
    const auto id = static_cast<ClusterId>(state.clusters.size() + 1);
    state.clusters.push_back({.id = id,
                              .name = "c" + std::to_string(id),
                              .cores_per_node = cores_per_node,
                              .scale = ManualScale{.target_node_count = ready_nodes}});
    add_nodes(id, ready_nodes);
    return id;
  }
  void add_nodes(ClusterId cluster_id, int count, NodeReadiness node_state = NodeReadiness::kReady) {
    for (int i = 0; i < count; ++i) state.nodes.push_back({++nodes_made, cluster_id, node_state});
  }
  JobId submit(int node_count, Time limit = std::chrono::hours(1), Priority priority = Priority::kNormal,
               ClusterId cluster_id = 1, std::string workspace = "w") {
    const JobId id = ++jobs_made;
    state.waiting.push_back({.id = id,
                             .name = "j" + std::to_string(id),
                             .workspace = std::move(workspace),
                             .cluster = cluster_id,
                             .priority = priority,
                             .sequence = id,
                             .node_count = node_count,
                             .wall_clock_limit = limit});
    return id;
  }

  Job* waiting(JobId id) {
    return found_or_null(state.waiting, [&](const Job& job) { return job.id == id; });
  }
  RunningJob* running(JobId id) {
    return found_or_null(state.running, [&](const RunningJob& running_job) { return running_job.job.id == id; });
  }

  /// Does what decide() says, at once, and returns what that was.
  std::vector<Decision> step() {
    std::vector<Decision> decisions = decide(state);
    for (const Decision& decision : decisions)
      std::visit([this](const auto& action) { apply(action); }, decision.action);
    return decisions;
  }
  /// Jobs that step() starts, in this order.
  std::vector<JobId> started_by_step() {
    std::vector<JobId> started;
    for (const Decision& decision : step()) {
      if (const auto* start = std::get_if<StartJob>(&decision.action)) started.push_back(start->job);
    }
    return started;
  }
  /// The job has ended and its nodes are clean.
  Job take_off(JobId id) {
    const Job job = running(id)->job;
    std::erase_if(state.running, [&](const RunningJob& running_job) { return running_job.job.id == id; });
    return job;
  }

  void apply(const StartJob& start) {
    Job job = *waiting(start.job);
    std::erase_if(state.waiting, [&](const Job& other) { return other.id == start.job; });
    job.attempts = start.attempt;
    state.running.push_back({.job = job, .nodes = start.nodes, .started = state.now});
  }
  void apply(const RequeueJob& requeue) { state.waiting.push_back(take_off(requeue.job)); }
  void apply(const TerminateJob& terminate) { take_off(terminate.job); }
  void apply(const ReleaseNode& release) {
    std::erase_if(state.nodes, [&](const Node& other) { return other.id == release.node; });
  }
  void apply(const AllocateNodes& allocate) { add_nodes(allocate.cluster, allocate.count, NodeReadiness::kPreparing); }

  NodeId nodes_made = 0;
  JobId jobs_made = 0;

 private:
  template <typename Values, typename Condition>
  static typename Values::value_type* found_or_null(Values& values, Condition condition) {
    const auto found = std::ranges::find_if(values, condition);
    return found == values.end() ? nullptr : &*found;
  }
};

/// Every action of one kind.
template <typename Kind>
std::vector<Kind> actions_of(const std::vector<Decision>& decisions) {
  std::vector<Kind> found;
  for (const Decision& decision : decisions) {
    if (const auto* action = std::get_if<Kind>(&decision.action)) found.push_back(*action);
  }
  return found;
}

}  // namespace gyre::jobs::scheduler
