#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/internal/stall/process_waits.h"
#include "gyre/engine/statistics.h"

namespace gyre::engine::internal {

class PlanLane;

/// The plans of one engine, so that its shutdown reaches them. Thread-safe.
class PlanRegistry {
 public:
  /// 0, 1, 2, …; rank 0's names the plan's channel.
  std::uint64_t next_number();

  void add(PlanLane* plan);
  /// Keeps what it has counted.
  void remove(PlanLane* plan);

  /// Adds what the plans have counted.
  void collect(EngineStatistics& statistics);

  /// Tells the coordinator of the steps that have begun here: another rank has joined and must take part in them.
  void announce_begun_steps();
  bool any_step_begun();
  /// The steps whose end this rank waits for.
  std::vector<PlanStep> awaited_steps();
  /// Adds what threads wait for, and the steps that cannot end before this rank brings gradients.
  void report(ProcessWaits::Source::Report& report);
  /// Takes part in the plan's steps up to `step` with zeros; false when `patience` passed first. True also when there
  /// is no such plan (any more).
  bool follow(const PlanStep& step, std::chrono::milliseconds patience);

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
