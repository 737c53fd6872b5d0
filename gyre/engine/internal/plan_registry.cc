#include "gyre/engine/internal/plan_registry.h"

#include "gyre/engine/internal/plan_lane.h"

namespace gyre::engine::internal {

std::uint64_t PlanRegistry::next_number() {
  const MutexLock lock(mutex_);
  return plans_made_++;
}

void PlanRegistry::add(PlanLane* plan) {
  const MutexLock lock(mutex_);
  plans_.push_back(plan);
}

void PlanRegistry::remove(PlanLane* plan) {
  const MutexLock lock(mutex_);
  std::erase(plans_, plan);
  if (ended_plans_.size() == kMostEndedPlans) {
    ended_plans_.erase(ended_plans_.begin());
    ended_lanes_.erase(ended_lanes_.begin());
  }
  ended_plans_.push_back(plan->statistics());
  ended_lanes_.push_back(plan->lane_statistics());
}

void PlanRegistry::collect(EngineStatistics& statistics) {
  const MutexLock lock(mutex_);
  statistics.ended_plans = ended_plans_;
  statistics.ended_lanes = ended_lanes_;
  for (const PlanLane* plan : plans_) {
    statistics.lanes.push_back(plan->lane_statistics());
    statistics.plans.push_back(plan->statistics());
  }
}

void PlanRegistry::shutdown() {
  const MutexLock lock(mutex_);
  for (PlanLane* plan : plans_) plan->shutdown();
}

}  // namespace gyre::engine::internal
