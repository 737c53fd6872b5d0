#pragma once

#include <stop_token>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::store {

/// How many requests may be under way at once: one more after each round of successes, half as many when the source
/// asks for fewer (at most once a second, for those under way all hear the same). Thread-safe.
/// Source: additive increase, multiplicative decrease; Chiu, Jain: "Analysis of the increase and decrease algorithms
/// for congestion avoidance in computer networks", 1989.
class TransferLimit {
 public:
  explicit TransferLimit(int most);

  /// Waits for leave to begin; false where that is asked to stop.
  bool begin(const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  void end() GYRE_EXCLUDES(mutex_);

  void succeeded() GYRE_EXCLUDES(mutex_);
  void overloaded() GYRE_EXCLUDES(mutex_);

  /// As it stands.
  int limit() const GYRE_EXCLUDES(mutex_);

 private:
  const double most_;
  mutable Mutex mutex_;
  ConditionVariable freed_;
  double limit_ GYRE_GUARDED_BY(mutex_);
  int under_way_ GYRE_GUARDED_BY(mutex_) = 0;
  SteadyClock::time_point lowered_ GYRE_GUARDED_BY(mutex_){};
};

}  // namespace gyre::store
