#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/engine/statistics.h"

namespace gyre::engine::internal {

/// Keeps the times of a plan's steps. Pure bookkeeping: the caller reads the clock. Not thread-safe.
class StepRecorder {
 public:
  using Time = SteadyClock::time_point;

  /// `plan`: what does not change from step to step; its buckets' times are filled in by each step.
  explicit StepRecorder(PlanStatistics plan);

  /// A tensor was contributed.
  void contribution(Time now) { begin(now); }
  /// The last tensor of a bucket was.
  void bucket_ready(std::size_t bucket, Time now);
  void bucket_started(std::size_t bucket, Time now);
  void bucket_ended(std::size_t bucket, Time now);
  /// finish_step was called, and `missing_tensors` contribute zeros.
  void closing(Time now, std::size_t missing_tensors);
  /// All buckets have ended, and finish_step returns.
  void finished(Time now);

  const PlanStatistics& statistics() const { return finished_; }

 private:
  struct BucketTimes {
    Time ready;
    Time start;
    Time end;
  };

  void begin(Time now);

  PlanStatistics finished_;
  bool begun_ = false;
  Time began_;
  Time closed_;
  std::vector<BucketTimes> times_;
  std::vector<bool> complete_;
  std::uint64_t overtaken_ = 0;
  std::uint64_t missing_tensors_ = 0;
};

}  // namespace gyre::engine::internal
