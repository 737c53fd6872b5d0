#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/open/order.h"

namespace gyre::engine::internal {

/// Where a plan stands, readable by any thread without a lock.
class StepMark {
 public:
  /// A step begins, unless it has begun already. Returns its number when it is new.
  std::optional<std::uint64_t> begin() {
    const std::uint64_t before = state_.fetch_or(1);
    return (before & 1) == 0 ? std::optional(before >> 1) : std::nullopt;
  }
  /// The step has ended.
  void end() { state_.store(((state_.load() >> 1) + 1) << 1); }
  /// The step that has begun and not ended.
  std::optional<std::uint64_t> begun() const {
    const std::uint64_t state = state_.load();
    return (state & 1) == 1 ? std::optional(state >> 1) : std::nullopt;
  }
  std::uint64_t ended() const { return state_.load() >> 1; }

 private:
  std::atomic<std::uint64_t> state_{0};  // Steps ended · 2, + 1 while one has begun.
};

/// What an engine's parts tell each other about ranks that have joined. Plans need no negotiation (ADR 6) as long as
/// nobody has; from the news that somebody has until all have, every rank announces the steps that it begins, so that
/// those who have joined know in which they must take part. A rank first notes that a step has begun and then looks
/// whether somebody has joined, and on the news does the two in the other order: one of the two finds it. Thread-safe.
class JoinWatch {
 public:
  /// Sends a begun step to the coordinator.
  explicit JoinWatch(std::function<void(const PlanStep&)> announce) : announce_(std::move(announce)) {}

  bool somebody_has_joined() const { return somebody_has_joined_.load(); }
  void set_somebody_has_joined(bool joined) { somebody_has_joined_.store(joined); }
  void announce(const PlanStep& step) const { announce_(step); }

  /// Ranks have begun this step.
  void follow(const PlanStep& step) {
    const MutexLock lock(mutex_);
    auto& last = begun_[step.plan];
    last = std::max(last, step.step);
    wake_locked();
  }
  /// Which join this is: they are counted as they end.
  std::uint64_t period() {
    const MutexLock lock(mutex_);
    return period_;
  }
  /// A join is over; what is begun from here on belongs to the next one.
  void end_period() {
    const MutexLock lock(mutex_);
    begun_before_ = begun_;
    ++period_;
    wake_locked();
  }
  /// The latest step of each plan that was begun anywhere before the end of this join: the one under way, or the one
  /// before it. (The ranks are not told that one is over at the same time: the next may have begun already.)
  std::vector<PlanStep> begun_in(std::uint64_t period) {
    const MutexLock lock(mutex_);
    std::vector<PlanStep> steps;
    for (const auto& [plan, step] : period == period_ ? begun_ : begun_before_) steps.push_back({plan, step});
    return steps;
  }

  /// Ends wait_for_news(): there is a step to follow, or the join is over.
  void wake() {
    const MutexLock lock(mutex_);
    wake_locked();
  }
  /// Changes with every wake(). Look at it first, then at what it is about, then wait.
  std::uint64_t news() {
    const MutexLock lock(mutex_);
    return news_;
  }
  void wait_for_news(std::uint64_t seen, SteadyClock::time_point until) {
    const MutexLock lock(mutex_);
    while (news_ == seen && SteadyClock::now() < until) changed_.wait_until(mutex_, until);
  }

 private:
  void wake_locked() GYRE_REQUIRES(mutex_) {
    ++news_;
    changed_.notify_all();
  }

  const std::function<void(const PlanStep&)> announce_;
  std::atomic<bool> somebody_has_joined_{false};
  Mutex mutex_;
  ConditionVariable changed_;
  std::uint64_t news_ GYRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t period_ GYRE_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::uint64_t> begun_ GYRE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> begun_before_ GYRE_GUARDED_BY(mutex_);  // As it was when the last join ended.
};

}  // namespace gyre::engine::internal
