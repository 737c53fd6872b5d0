#pragma once

#include <chrono>
#include <optional>

#include "gyre/base/clock.h"

namespace gyre::engine::internal {

/// The time between starts and stops, including one under way. It reads the clock only where it starts or stops.
class Stopwatch {
 public:
  void start() {
    if (!since_) since_ = SteadyClock::now();
  }
  void stop() {
    if (since_) total_ += SteadyClock::now() - *since_;
    since_.reset();
  }
  std::chrono::nanoseconds so_far() const { return since_ ? total_ + (SteadyClock::now() - *since_) : total_; }

 private:
  std::optional<SteadyClock::time_point> since_;
  std::chrono::nanoseconds total_{0};
};

}  // namespace gyre::engine::internal
