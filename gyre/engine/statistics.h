#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gyre/collectives/select.h"
#include "gyre/engine/request.h"
#include "gyre/group/lane.h"

// What the engine has counted, for `gyre explain`, the benches and tests. Snapshots: values, to be read at leisure.
// All times are of this rank's steady clock; they compare within a rank only.

namespace gyre::engine {

/// One lane of collectives since it was made. All numbers only grow. Waits and copies that take less than some
/// microseconds are not timed, so the four times are lower bounds; what a lane waits *between* collectives is not in
/// them.
struct LaneStatistics {
  std::string lane;  ///< "open", "board" (synchronous calls on the caller's thread), or "plan 'NAME'".
  group::LaneCounters counters;
  /// Between collectives: an operation that this rank had announced waited for other ranks to do so. Until now.
  std::chrono::nanoseconds awaited{0};
};

/// One bucket of a plan, and when it was exchanged in the last finished step. Times since the step's first
/// contribution (or since finish_step, where there was none).
struct BucketStatistics {
  std::size_t tensor_count = 0;
  std::size_t size_bytes = 0;  ///< Padding between tensors included.
  DataType type = DataType::kFloat32;
  collectives::Algorithm algorithm = collectives::Algorithm::kAlone;
  std::string reason;                 ///< Why this algorithm, in one line.
  std::chrono::nanoseconds ready{0};  ///< This rank's last tensor was in.
  std::chrono::nanoseconds start{0};  ///< The exchange began on this rank: its turn had come. start - ready: queueing.
  std::chrono::nanoseconds end{0};    ///< Reduced. end - start: waiting for the other ranks included.
};

/// How a step went, or the sum over steps.
struct StepStatistics {
  std::chrono::nanoseconds backward{0};  ///< From the first contribution to the call of finish_step.
  std::chrono::nanoseconds exchange{0};  ///< Sum of end - start over all buckets.
  std::chrono::nanoseconds hidden{0};    ///< The part of `exchange` that fell before the call of finish_step.
  std::chrono::nanoseconds exposed{0};   ///< What finish_step waited: what the exchange cost the training.
  /// Buckets that were complete before one that runs earlier: zero when contributions come in the plan's order.
  std::uint64_t overtaken_buckets = 0;
  std::uint64_t missing_tensors = 0;  ///< Contributed zeros, because they were not contributed.
};

struct PlanStatistics {
  std::string name;
  std::uint64_t steps = 0;  ///< Finished.
  std::size_t arena_bytes = 0;
  std::vector<BucketStatistics> buckets{};  ///< In the order in which they run.
  StepStatistics last{};                    ///< Of the last finished step.
  StepStatistics total{};                   ///< Of all finished steps.
  std::chrono::nanoseconds awaited{0};      ///< How long finish_step has waited now for the end of the next one.
};

constexpr std::size_t kMostEndedPlans = 16;

struct EngineStatistics {
  std::vector<LaneStatistics> lanes;
  std::vector<PlanStatistics> plans;          ///< Those that exist, in the order in which they were made.
  std::vector<PlanStatistics> ended_plans{};  ///< The last kMostEndedPlans of those that have been destroyed,
  std::vector<LaneStatistics> ended_lanes{};  ///< and their lanes.
};

}  // namespace gyre::engine
