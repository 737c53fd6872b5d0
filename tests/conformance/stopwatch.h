#pragma once

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

#include "gyre/base/clock.h"

namespace gyre::testing {

/// Measures what the code under test takes on a machine that may have other things to do. A thread of its own, which
/// needs next to no time, asks again and again to be woken 2 ms later. By how much that is late is how long the machine
/// kept everybody waiting, and is not counted. Code that waits too long by itself has nothing to do with it: the thread
/// is in time then.
class Stopwatch {
 public:
  /// Since the construction, less what the machine was late by.
  std::chrono::nanoseconds elapsed() const {
    const auto now = SteadyClock::now();
    return now - start_ - late_.load() - lateness(now - last_.load());
  }

 private:
  using Duration = std::chrono::nanoseconds;
  static constexpr std::chrono::milliseconds kStep{2};

  /// Less than a step is what a thread is late on an idle machine.
  static Duration lateness(Duration since_last) {
    const Duration late = since_last - kStep;
    return late > kStep ? late : Duration(0);
  }

  void look(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(kStep);
      const auto now = SteadyClock::now();
      late_ = late_.load() + lateness(now - last_.load());
      last_ = now;
    }
  }

  SteadyClock::time_point start_ = SteadyClock::now();
  std::atomic<SteadyClock::time_point> last_{start_};
  std::atomic<Duration> late_{Duration(0)};
  std::jthread thread_{[this](const std::stop_token& stop) { look(stop); }};
};

}  // namespace gyre::testing
