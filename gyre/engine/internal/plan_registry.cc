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
}

void PlanRegistry::collect(EngineStatistics& statistics) {
  const MutexLock lock(mutex_);
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
