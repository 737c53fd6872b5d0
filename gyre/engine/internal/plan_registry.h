#pragma once

#include <cstdint>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/statistics.h"

namespace gyre::engine::internal {

class PlanLane;

/// The plans of one engine, so that its shutdown reaches them. Thread-safe.
class PlanRegistry {
 public:
  /// The number of the next plan, from 0; the same on all ranks as long as they make their plans in the same
  /// order, which make_plan checks.
  std::uint64_t next_number();

  void add(PlanLane* plan);
  /// Keeps what it has counted.
  void remove(PlanLane* plan);

  /// Adds what the plans have counted.
  void collect(EngineStatistics& statistics);

  /// Ends all plans with kShutDown; they may be destroyed later.
  void shutdown();

 private:
  Mutex mutex_;
  std::uint64_t plans_made_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<PlanLane*> plans_ GYRE_GUARDED_BY(mutex_);
  std::vector<PlanStatistics> ended_plans_ GYRE_GUARDED_BY(mutex_);
  std::vector<LaneStatistics> ended_lanes_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::engine::internal
