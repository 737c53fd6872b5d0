#include "gyre/jobs/scheduler/internal/ledger.h"

#include <algorithm>
#include <set>

#include "gyre/base/check.h"

namespace gyre::jobs::scheduler {

Ledger::Ledger(const State& state, const Line& line) : state_(state), line_(line) {
  for (const Cluster& cluster : state.clusters) {
    clusters_[cluster.id] = &cluster;
    nodes_[cluster.id] = {};
  }
  for (const Quota& quota : state.quotas) cores_left_.push_back(quota.cores);
  std::map<NodeId, NodeReadiness> states;
  for (const Node& node : state.nodes) states[node.id] = node.state;
  for (const RunningJob& running : state.running) add_running(running, states);
  std::set<NodeId> held;
  for (const RunningJob& running : state.running) {
    for (const NodeId node : running.nodes) GYRE_CHECK(held.insert(node).second);  // Never two jobs on one node.
  }
  for (const Node& node : state.nodes) add_node(node, held.contains(node.id));
  for (auto& [id, counts] : nodes_) {
    std::ranges::sort(counts.idle);
    std::ranges::sort(counts.preparing);
    std::ranges::sort(counts.unusable);
  }
}

void Ledger::add_node(const Node& node, bool busy) {
  NodeCounts& counts = nodes_[node.cluster];
  switch (node.state) {
    case NodeReadiness::kLost: break;
    case NodeReadiness::kLeaving: ++counts.leaving; break;
    case NodeReadiness::kPreparing:
    case NodeReadiness::kReady:
    case NodeReadiness::kUnusable:
      if (busy) {
        ++counts.busy;
      } else if (node.state == NodeReadiness::kReady) {
        counts.idle.push_back(node.id);
      } else {
        (node.state == NodeReadiness::kPreparing ? counts.preparing : counts.unusable).push_back(node.id);
      }
      break;
  }
}

void Ledger::add_running(const RunningJob& running, const std::map<NodeId, NodeReadiness>& states) {
  Hold hold{.job = running.job.id};
  if (cluster(running.job.cluster) != nullptr) hold.demand = demand_of(running.job);
  hold.demand.cluster = running.job.cluster;
  // Of what the job holds only these come back.
  hold.demand.nodes = static_cast<int>(std::ranges::count_if(running.nodes, [&](NodeId node) {
    const auto found = states.find(node);
    return found != states.end() &&
           (found->second == NodeReadiness::kReady || found->second == NodeReadiness::kPreparing);
  }));
  if (!running.ending) hold.end = running.started + running.job.wall_clock_limit;
  if (hold.demand.quota) cores_left_[*hold.demand.quota] -= hold.demand.cores;
  holds_.push_back(hold);
}

const Cluster* Ledger::cluster(ClusterId id) const {
  const auto found = clusters_.find(id);
  return found == clusters_.end() ? nullptr : found->second;
}

Demand Ledger::demand_of(const Job& job) const {
  const Cluster& home = *clusters_.at(job.cluster);
  Demand demand{.cluster = job.cluster, .nodes = job.node_count};
  const auto quota = std::ranges::find_if(state_.quotas, [&](const Quota& candidate) {
    return candidate.workspace == job.workspace && candidate.node_priority == home.node_priority;
  });
  if (quota != state_.quotas.end()) {
    demand.quota = static_cast<std::size_t>(quota - state_.quotas.begin());
    demand.cores = job.node_count * home.cores_per_node;
  }
  return demand;
}

bool Ledger::fits_now(const Demand& demand) const {
  const bool nodes_fit = static_cast<int>(nodes(demand.cluster).idle.size()) >= demand.nodes;
  return nodes_fit && (!demand.quota || cores_left_[*demand.quota] >= demand.cores);
}

std::vector<NodeId> Ledger::take(JobId job, const Demand& demand, Time end) {
  GYRE_CHECK(fits_now(demand));
  NodeCounts& counts = nodes(demand.cluster);
  const auto last = counts.idle.begin() + demand.nodes;
  std::vector<NodeId> taken(counts.idle.begin(), last);
  counts.idle.erase(counts.idle.begin(), last);
  counts.busy += demand.nodes;
  if (demand.quota) cores_left_[*demand.quota] -= demand.cores;
  holds_.push_back({.job = job, .demand = demand, .end = end});
  return taken;
}

void Ledger::mark_ending(JobId job) {
  for (Hold& hold : holds_) {
    if (hold.job == job) hold.end.reset();
  }
}

}  // namespace gyre::jobs::scheduler
