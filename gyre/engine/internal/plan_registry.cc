#include "gyre/engine/internal/plan_registry.h"

#include "gyre/engine/internal/plan_lane.h"

namespace gyre::engine::internal {

std::uint64_t PlanRegistry::next_number() {
  const MutexLock lock(mutex_);
  return plans_made_++;
}

void PlanRegistry::add(PlanLane* plan) {
  const MutexLock lock(mutex_);
  plans_.insert(plan);
}

void PlanRegistry::remove(PlanLane* plan) {
  const MutexLock lock(mutex_);
  plans_.erase(plan);
}

void PlanRegistry::shutdown() {
  const MutexLock lock(mutex_);
  for (PlanLane* plan : plans_) plan->shutdown();
}

}  // namespace gyre::engine::internal
