#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>

#include "gyre/base/clock.h"
#include "gyre/base/random.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// How long to wait before a reading is tried again: 0.3 to 30 s, three times the last wait at most, drawn at random so
/// that many readers do not come back together; what the source asks for, where that is longer. Gives up when nothing
/// has arrived for as long as `patience`. Not thread-safe.
/// Source: "decorrelated jitter", M. Brooker, "Exponential backoff and jitter", AWS Architecture Blog, 2015.
class Backoff {
 public:
  explicit Backoff(std::chrono::milliseconds patience);

  /// Something arrived: both begin anew.
  void progress();
  /// Waits; false where it is time to give up, or to stop. `long_wait`, which may be empty, is called before a wait
  /// after which nothing will have arrived for more than three seconds.
  bool wait(const Setback& setback, const std::stop_token& stop, const std::function<void()>& long_wait = {});

 private:
  std::chrono::milliseconds patience_;
  SteadyClock::time_point since_;
  std::chrono::milliseconds last_;
  Random random_;
};

}  // namespace gyre::store
