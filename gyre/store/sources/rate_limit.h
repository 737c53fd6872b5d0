#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::store {

/// So many bytes per second for all who share it. Thread-safe.
class RateLimit {
 public:
  /// 0: no limit.
  explicit RateLimit(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  /// Waits until `bytes` more may have passed; returns at once where that is asked to stop.
  void pass(std::uint64_t bytes, const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  /// How many have passed.
  std::uint64_t passed_bytes() const { return passed_bytes_; }

 private:
  const std::uint64_t bytes_per_second_;
  std::atomic<std::uint64_t> passed_bytes_{0};
  Mutex mutex_;
  SteadyClock::time_point free_at_ GYRE_GUARDED_BY(mutex_){};
};

}  // namespace gyre::store
