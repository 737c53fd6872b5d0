#include "gyre/jobs/scheduler/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "gyre/jobs/scheduler/decide.h"
#include "gyre/jobs/scheduler/internal/pass.h"
#include "gyre/jobs/scheduler/internal/sizing.h"
#include "gyre/jobs/scheduler/internal/words.h"

namespace gyre::jobs::scheduler {
namespace {

std::string_view priority_name(Priority priority) {
  constexpr std::array<std::string_view, 3> kNames = {"low", "normal", "high"};
  return kNames[static_cast<std::size_t>(priority)];
}

std::string_view priority_name(NodePriority priority) {
  return priority == NodePriority::kDedicated ? "dedicated" : "low-priority";
}

/// Tries what would start a waiting job, in a line of its own.
class Trial {
 public:
  Trial(const State& state, const Line& line, const Job& job) : state_(state), line_(line), job_(job) {}

  /// Whether the job would start at once after `change`.
  template <typename Change>
  bool starts_after(Change change) {
    Job changed = job_;
    change(changed);
    line_.put(changed);
    return std::ranges::any_of(decide(state_, line_), [&](const Decision& decision) {
      const auto* start = std::get_if<StartJob>(&decision.action);
      return start != nullptr && start->job == job_.id;
    });
  }

 private:
  const State& state_;
  Line line_;
  const Job job_;
};

std::optional<int> find_node_count(Trial& trial, const Job& job) {
  int good = 0;
  // Whatever starts with n nodes starts with fewer, too.
  for (int bad = job.node_count; bad - good > 1;) {
    const int middle = good + (bad - good) / 2;
    (trial.starts_after([&](Job& other) { other.node_count = middle; }) ? good : bad) = middle;
  }
  return good > 0 ? std::optional(good) : std::nullopt;
}

std::optional<Time> find_limit(Trial& trial, const Pass& pass, const Blocked& blocked) {
  if (!blocked.fits_now) return std::nullopt;
  const State& state = pass.ledger().state();
  Time limit = blocked.job->wall_clock_limit;
  for (const Blocked& other : pass.blocked()) {
    if (!other.is_head || !could_delay(other.reservation, blocked.demand, state.now + blocked.job->wall_clock_limit))
      continue;
    limit = std::min(limit, other.reservation.earliest - state.now);
  }
  if (limit <= Time::zero()) return std::nullopt;
  const bool good = trial.starts_after([&](Job& other) { other.wall_clock_limit = limit; });
  return good ? std::optional(limit) : std::nullopt;
}

std::optional<Priority> find_priority(Trial& trial, const Job& job) {
  for (const Priority priority : {Priority::kNormal, Priority::kHigh}) {
    if (priority <= job.priority) continue;
    if (trial.starts_after([&](Job& other) { other.priority = priority; })) return priority;
  }
  return std::nullopt;
}

std::string are(int count, std::string_view what) {
  if (count == 0) return fmt::format("none is {}", what);
  return fmt::format("{} {} {}", count, count == 1 ? "is" : "are", what);
}

/// "needs 4 nodes; 3 are idle, 1 is preparing"
std::string nodes_text(const NodeCounts& counts, const Job& job) {
  std::vector<std::string> parts = {are(static_cast<int>(counts.idle.size()), "idle")};
  const auto add = [&](int count, std::string_view what) {
    if (count > 0) parts.push_back(are(count, what));
  };
  add(static_cast<int>(counts.preparing.size()), "preparing");
  add(counts.to_come, "still to come");
  add(counts.busy, "busy");
  add(static_cast<int>(counts.unusable.size()), "unusable");
  add(counts.leaving, "leaving");
  return fmt::format("needs {}; {}", counted(job.node_count, "node"), fmt::join(parts, ", "));
}

/// "needs 16 cores; workspace 'vision' may use 32 dedicated cores at once and uses 24"
std::string quota_text(const Ledger& ledger, const Demand& demand) {
  const Quota& quota = ledger.state().quotas[*demand.quota];
  return fmt::format("needs {}; workspace '{}' may use {} at once and uses {}", counted(demand.cores, "core"),
                     quota.workspace, counted(quota.cores, std::string(priority_name(quota.node_priority)) + " core"),
                     quota.cores - ledger.cores_left(*demand.quota));
}

Explanation never(const Ledger& ledger, const Job& job) {
  const Cluster* cluster = ledger.cluster(job.cluster);
  if (cluster == nullptr) return {.reason = WaitReason::kNoCluster, .text = "its cluster does not exist any more"};
  const int largest = largest_node_count(*cluster);
  if (job.node_count > largest) {
    const bool manual = std::holds_alternative<ManualScale>(cluster->scale);
    return {.reason = WaitReason::kClusterTooSmall,
            .text = fmt::format("needs {}; cluster '{}' is limited to {}; resize it to {} or more {}",
                                counted(job.node_count, "node"), cluster->name, largest, job.node_count,
                                manual ? "nodes" : "nodes at most")};
  }
  return {.reason = WaitReason::kQuotaTooSmall,
          .text = quota_text(ledger, ledger.demand_of(job)) + "; a larger quota would let it start"};
}

int jobs_ahead(const Pass& pass, const Blocked& blocked) {
  int count = 0;
  for (const Blocked& other : pass.blocked()) {
    if (other.job == blocked.job) break;
    // Those that can never start are in nobody's way.
    const bool in_the_way = other.demand.nodes > 0;
    if (in_the_way && (other.demand.shares_nodes(blocked.demand) || other.demand.shares_quota(blocked.demand))) ++count;
  }
  return count;
}

/// What it lacks, or in whose way it would be.
Explanation obstacle(const Pass& pass, const Blocked& blocked) {
  const Ledger& ledger = pass.ledger();
  if (blocked.fits_now) {
    const Job& head = *blocked.delayed;
    return {.reason = WaitReason::kBehindOthers,
            .text = fmt::format(
                "job '{}' ({} priority) is ahead of it and waits for {}; starting this one now could delay it",
                head.name, priority_name(head.priority), counted(head.node_count, "node"))};
  }
  const NodeCounts& counts = ledger.nodes(blocked.demand.cluster);
  const bool lacks_nodes = static_cast<int>(counts.idle.size()) < blocked.demand.nodes;
  const bool lacks_cores = blocked.demand.quota && ledger.cores_left(*blocked.demand.quota) < blocked.demand.cores;
  Explanation found{.reason = lacks_nodes ? WaitReason::kNodes : WaitReason::kQuota};
  if (lacks_nodes) found.text = nodes_text(counts, *blocked.job);
  if (lacks_cores) found.text += (lacks_nodes ? "; " : "") + quota_text(ledger, blocked.demand);
  if (const int ahead = jobs_ahead(pass, blocked); ahead > 0) {
    found.text += fmt::format("; {} ahead of it", counted(ahead, "job is", "jobs are"));
  }
  return found;
}

void add_suggestions(const Pass& pass, const Blocked& blocked, Explanation& found) {
  const Job& job = *blocked.job;
  Trial trial(pass.ledger().state(), pass.ledger().line(), job);
  found.startable_node_count = find_node_count(trial, job);
  found.startable_wall_clock_limit = find_limit(trial, pass, blocked);
  found.startable_priority = find_priority(trial, job);
  std::vector<std::string> ways;
  if (found.startable_node_count) ways.push_back("with " + counted(*found.startable_node_count, "node"));
  if (found.startable_wall_clock_limit) {
    ways.push_back("with a wall-clock limit of " + duration_text(*found.startable_wall_clock_limit));
  }
  if (found.startable_priority)
    ways.push_back(fmt::format("with {} priority", priority_name(*found.startable_priority)));
  if (!ways.empty()) found.text += fmt::format("; would start at once {}", fmt::join(ways, " or "));
}

Explanation of_blocked(const Pass& pass, const Blocked& blocked) {
  if (!can_ever_start(pass.ledger(), *blocked.job)) {
    Explanation found = never(pass.ledger(), *blocked.job);
    if (found.reason != WaitReason::kNoCluster) add_suggestions(pass, blocked, found);
    return found;
  }
  Explanation found = obstacle(pass, blocked);
  if (blocked.is_head && blocked.reservation.latest != kNever) {
    found.latest_start = blocked.reservation.latest;
    const Time wait = *found.latest_start - pass.ledger().state().now;
    found.text += fmt::format("; running jobs reach their wall-clock limits and make room in {}", duration_text(wait));
  }
  add_suggestions(pass, blocked, found);
  return found;
}

}  // namespace

std::string_view wait_reason_name(WaitReason reason) {
  switch (reason) {
    case WaitReason::kStartsNow: return "startsNow";
    case WaitReason::kNodes: return "nodes";
    case WaitReason::kQuota: return "quota";
    case WaitReason::kBehindOthers: return "behindOthers";
    case WaitReason::kClusterTooSmall: return "clusterTooSmall";
    case WaitReason::kQuotaTooSmall: return "quotaTooSmall";
    case WaitReason::kNoCluster: return "noCluster";
  }
  return "unknown";
}

std::optional<Explanation> explain(JobId id, const State& state) { return explain(id, state, Line(state.waiting)); }

std::optional<Explanation> explain(JobId id, const State& state, const Line& waiting) {
  if (waiting.find(id) == nullptr) return std::nullopt;
  const Pass pass(state, waiting, Extent::kAll);
  const auto& blocked = pass.blocked();
  const auto found = std::ranges::find_if(blocked, [&](const Blocked& one) { return one.job->id == id; });
  if (found != blocked.end()) return of_blocked(pass, *found);
  return Explanation{.reason = WaitReason::kStartsNow, .text = "starts now", .latest_start = state.now};
}

}  // namespace gyre::jobs::scheduler
