#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "gyre/base/thread_annotations.h"

namespace gyre::engine::internal {

class PlanLane;

/// The plans of one engine: hands out their channels, and brings to each what the open lane hears of ranks that
/// leave. Thread-safe.
class PlanRegistry {
 public:
  /// The next plan's channel; the same on all ranks as long as they make their plans in the same order, which make_plan checks.
  std::uint64_t next_channel();

  void add(std::uint64_t channel, PlanLane* plan);
  /// Keeps the number of collectives that the plan has finished, for the goodbye.
  void remove(std::uint64_t channel, std::uint64_t finished_collectives);

  /// A rank has left, having finished so many collectives of each plan: a plan that waits for more can only fail.
  void depart(int rank, const std::map<std::uint64_t, std::uint64_t>& finished_collectives);

  /// Ends all plans with kShutDown; they may be destroyed later.
  void shutdown();

  /// What this rank has finished, for its own goodbye.
  std::map<std::uint64_t, std::uint64_t> finished();

 private:
  Mutex mutex_;
  std::uint64_t plans_made_ GYRE_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, PlanLane*> plans_ GYRE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> finished_ GYRE_GUARDED_BY(mutex_);
  std::map<int, std::map<std::uint64_t, std::uint64_t>> departed_ GYRE_GUARDED_BY(mutex_);
};

/// Channels of a group's links and segments.
constexpr std::uint64_t kNegotiationChannel = 1;
constexpr std::uint64_t kOpenLaneChannel = 2;
constexpr std::uint64_t kMeetingChannel = 3;
constexpr std::uint64_t kMeetingBoardChannel = 4;
constexpr std::uint64_t kFirstPlanChannel = 16;

}  // namespace gyre::engine::internal
