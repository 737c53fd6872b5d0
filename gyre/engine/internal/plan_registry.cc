#include "gyre/engine/internal/plan_registry.h"

#include "gyre/engine/internal/plan_lane.h"

namespace gyre::engine::internal {

namespace {
std::uint64_t value_or_zero(const std::map<std::uint64_t, std::uint64_t>& values, std::uint64_t key) {
  const auto found = values.find(key);
  return found == values.end() ? 0 : found->second;
}
}  // namespace

std::uint64_t PlanRegistry::next_channel() {
  const MutexLock lock(mutex_);
  return kFirstPlanChannel + plans_made_++;
}

void PlanRegistry::add(std::uint64_t channel, PlanLane* plan) {
  const MutexLock lock(mutex_);
  plans_[channel] = plan;
  for (const auto& [rank, finished] : departed_) plan->peer_departed(rank, value_or_zero(finished, channel));
}

void PlanRegistry::remove(std::uint64_t channel, std::uint64_t finished_collectives) {
  const MutexLock lock(mutex_);
  plans_.erase(channel);
  finished_[channel] = finished_collectives;
}

void PlanRegistry::depart(int rank, const std::map<std::uint64_t, std::uint64_t>& finished_collectives) {
  const MutexLock lock(mutex_);
  departed_[rank] = finished_collectives;
  for (const auto& [channel, plan] : plans_) plan->peer_departed(rank, value_or_zero(finished_collectives, channel));
}

void PlanRegistry::shutdown() {
  std::map<std::uint64_t, PlanLane*> plans;
  {
    const MutexLock lock(mutex_);
    plans = plans_;
  }
  // Without the mutex: a plan may be inside a collective that only a departure, which comes through depart(), ends.
  for (const auto& [channel, plan] : plans) {
    plan->shutdown();
    const std::uint64_t finished = plan->finished_collectives();
    const MutexLock lock(mutex_);
    finished_[channel] = finished;
  }
}

std::map<std::uint64_t, std::uint64_t> PlanRegistry::finished() {
  const MutexLock lock(mutex_);
  return finished_;
}

}  // namespace gyre::engine::internal
