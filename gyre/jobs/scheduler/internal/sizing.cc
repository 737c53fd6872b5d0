#include "gyre/jobs/scheduler/internal/sizing.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::jobs::scheduler {
namespace {

int node_count_of(const RunningJob& running) { return static_cast<int>(running.nodes.size()); }

/// Jobs to end so that `excess` nodes come back: the lowest priority first, of those the latest started, because it
/// loses the least work. None of them is there in vain.
std::vector<const RunningJob*> victims(const Ledger& ledger, const Cluster& cluster, int excess) {
  std::vector<const RunningJob*> candidates;
  for (const RunningJob& running : ledger.state().running) {
    if (running.job.cluster != cluster.id) continue;
    const auto hold = std::ranges::find(ledger.holds(), running.job.id, &Hold::job);
    if (!hold->end) {
      excess -= node_count_of(running);
    } else {
      candidates.push_back(&running);
    }
  }
  std::ranges::sort(candidates, [](const RunningJob* a, const RunningJob* b) {
    if (a->job.priority != b->job.priority) return a->job.priority < b->job.priority;
    if (a->started != b->started) return a->started > b->started;
    return a->job.sequence > b->job.sequence;
  });
  std::vector<const RunningJob*> chosen;
  int covered = 0;
  for (const RunningJob* candidate : candidates) {
    if (covered >= excess) break;
    chosen.push_back(candidate);
    covered += node_count_of(*candidate);
  }
  // A large job at the end may make smaller ones before it unnecessary.
  std::erase_if(chosen, [&](const RunningJob* candidate) {
    if (covered - node_count_of(*candidate) < excess) return false;
    covered -= node_count_of(*candidate);
    return true;
  });
  return chosen;
}

/// Releases up to `excess` of these nodes, the highest number first, and returns how many are still too many.
int release(std::vector<NodeId>& nodes, int excess, const std::string& why, std::vector<Decision>& decisions) {
  for (; excess > 0 && !nodes.empty(); --excess) {
    decisions.push_back({ReleaseNode{nodes.back()}, Reason::kClusterShrinks, why});
    nodes.pop_back();
  }
  return excess;
}

void end_jobs(Ledger& ledger, const Cluster& cluster, int excess, const std::string& why,
              std::vector<Decision>& decisions) {
  const auto* manual = std::get_if<ManualScale>(&cluster.scale);
  if (manual == nullptr || manual->deallocation == Deallocation::kWaitForCompletion) return;
  for (const RunningJob* victim : victims(ledger, cluster, excess)) {
    const Job& job = victim->job;
    Decision decision{.action = RequeueJob{job.id, job.attempts}, .reason = Reason::kClusterShrinks, .why = why};
    if (manual->deallocation == Deallocation::kTerminate) decision.action = TerminateJob{job.id, job.attempts};
    decisions.push_back(decision);
    ledger.mark_ending(job.id);
  }
}

}  // namespace

int largest_node_count(const Cluster& cluster) {
  if (const auto* manual = std::get_if<ManualScale>(&cluster.scale)) return manual->target_node_count;
  return std::get<AutoScale>(cluster.scale).maximum_node_count;
}

int target_node_count(const Ledger& ledger, const Cluster& cluster) {
  if (const auto* manual = std::get_if<ManualScale>(&cluster.scale)) return manual->target_node_count;
  const auto& scale = std::get<AutoScale>(cluster.scale);
  std::int64_t wanted = 0;
  for (const RunningJob& running : ledger.state().running) {
    if (running.job.cluster == cluster.id) wanted += node_count_of(running);
  }
  for (const auto& [key, lane] : ledger.line().lanes()) {
    if (key.first != cluster.id) continue;
    for (const auto& [place, job] : lane.jobs()) {
      if (wanted >= scale.maximum_node_count) break;
      // For a job that can never start here no node is needed.
      if (job.node_count <= scale.maximum_node_count) wanted += job.node_count;
    }
  }
  // In this order, so that a minimum above the maximum still means something.
  return static_cast<int>(
      std::min<std::int64_t>(std::max<std::int64_t>(wanted, scale.minimum_node_count), scale.maximum_node_count));
}

void resize(Ledger& ledger, const Cluster& cluster, std::vector<Decision>& decisions) {
  NodeCounts& counts = ledger.nodes(cluster.id);
  const int target = target_node_count(ledger, cluster);
  const int members = counts.members();
  if (members < target) {
    counts.to_come = target - members;
    decisions.push_back({AllocateNodes{cluster.id, counts.to_come}, Reason::kClusterGrows,
                         fmt::format("cluster '{}' has {} of {} nodes", cluster.name, members, target)});
    return;
  }
  const std::string why = fmt::format("cluster '{}' shrinks from {} to {} nodes", cluster.name, members, target);
  int excess = release(counts.unusable, members - target, why, decisions);
  excess = release(counts.preparing, excess, why, decisions);
  excess = release(counts.idle, excess, why, decisions);
  counts.to_leave = excess;
  if (excess > 0) end_jobs(ledger, cluster, excess, why, decisions);
}

}  // namespace gyre::jobs::scheduler
