#include "gyre/engine/internal/plan/plan_registry.h"

#include <algorithm>

#include "gyre/engine/internal/plan/plan_lane.h"

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

void PlanRegistry::announce_begun_steps() {
  const MutexLock lock(mutex_);
  for (PlanLane* plan : plans_) plan->announce_begun_step();
}

bool PlanRegistry::any_step_begun() {
  const MutexLock lock(mutex_);
  return std::any_of(plans_.begin(), plans_.end(),
                     [](PlanLane* plan) { return plan->step_mark().begun().has_value(); });
}

std::vector<PlanStep> PlanRegistry::awaited_steps() {
  const MutexLock lock(mutex_);
  std::vector<PlanStep> steps;
  for (const PlanLane* plan : plans_) {
    if (const auto step = plan->awaited_step()) steps.push_back(*step);
  }
  return steps;
}

void PlanRegistry::report(ProcessWaits::Source::Report& report) {
  const MutexLock lock(mutex_);
  for (const PlanLane* plan : plans_) {
    if (auto wait = plan->wait()) {
      wait->second.engine = report.state.engine;
      report.waits.push_back(*std::move(wait));
    }
    if (const auto owed = plan->owed()) report.owed.push_back(*owed);
  }
}

bool PlanRegistry::follow(const PlanStep& step, std::chrono::milliseconds patience) {
  const MutexLock lock(mutex_);
  for (PlanLane* plan : plans_) {
    if (plan->channel() != step.plan) continue;
    return plan->step_mark().ended() > step.step ||
           (plan->finish_step_for(patience) && plan->step_mark().ended() > step.step);
  }
  return true;
}

void PlanRegistry::shutdown() {
  const MutexLock lock(mutex_);
  for (PlanLane* plan : plans_) plan->shutdown();
}

}  // namespace gyre::engine::internal
