#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gyre/jobs/scheduler/line.h"
#include "gyre/jobs/scheduler/state.h"

namespace gyre::jobs::scheduler {

/// Why a job waits. The names are stable, for scripts.
enum class WaitReason {
  kStartsNow,        ///< Nothing holds it up.
  kNodes,            ///< It needs more nodes than are idle.
  kQuota,            ///< Its workspace's quota of cores is in use.
  kBehindOthers,     ///< Nodes and quota would do, but starting it could delay a job ahead of it.
  kClusterTooSmall,  ///< It needs more nodes than its cluster may have.
  kQuotaTooSmall,    ///< It needs more cores than its workspace may ever use.
  kNoCluster,        ///< Its cluster does not exist any more.
};

/// "nodes", "quota", …
std::string_view wait_reason_name(WaitReason reason);

struct Explanation {
  WaitReason reason = WaitReason::kStartsNow;
  /// "needs 4 nodes; 3 are idle, 1 is preparing; would start at once with 3 nodes"
  std::string text{};
  /// When it starts at the latest if nothing happens but that running jobs reach their limits; unset when nobody knows.
  std::optional<Time> latest_start{};
  /// Each of these changes alone would start it at once.
  std::optional<int> startable_node_count{};
  std::optional<Time> startable_wall_clock_limit{};
  std::optional<Priority> startable_priority{};
};

/// Why the waiting job `id` waits, and what would start it. Pure: tries its suggestions with decide(). Nothing when the
/// job is not waiting.
std::optional<Explanation> explain(JobId id, const State& state);
/// The same with the waiting jobs of `waiting` instead of the State's own.
std::optional<Explanation> explain(JobId id, const State& state, const Line& waiting);

}  // namespace gyre::jobs::scheduler
