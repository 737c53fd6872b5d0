#pragma once

#include <algorithm>
#include <chrono>

#include "gyre/base/clock.h"

namespace gyre::jobs::drivers::local::internal {

inline constexpr int kMostStarts = 6;

/// When a node's program that is not there is started again: at once after its first start, then after pauses that
/// double. A node program that has lived for long, or whose attempt has ended, begins anew. A value without a clock.
class Restarts {
 public:
  using Time = SteadyClock::time_point;

  explicit Restarts(std::chrono::milliseconds first_pause) : first_pause_(first_pause) {}

  /// A node program was started just now.
  void started(Time now) {
    ++starts_;
    came_ = false;
    next_ = now + std::max<std::chrono::milliseconds>(kPatience, pause());
  }
  /// One that is there already keeps the new one out, and comes by itself.
  void is_coming(Time now) { next_ = now + kPatience; }
  void came(Time now) {
    came_ = true;
    came_at_ = now;
  }
  void ended(Time now) {
    if (came_ && now - came_at_ >= kLongLife) starts_ = 1;
    came_ = false;
    next_ = now + pause();
  }

  bool is_due(Time now) const { return now >= next_; }
  Time next() const { return next_; }
  int starts() const { return starts_; }
  bool exhausted() const { return starts_ >= kMostStarts; }
  /// Between the node program's end and its next start.
  std::chrono::milliseconds pause() const {
    return starts_ < 2 ? std::chrono::milliseconds(0) : first_pause_ * (1 << std::min(starts_ - 2, kMostStarts));
  }

 private:
  static constexpr std::chrono::seconds kPatience{1};  // With a node program that was started and has not come.
  static constexpr std::chrono::seconds kLongLife{30};

  std::chrono::milliseconds first_pause_;
  Time next_{};
  Time came_at_{};
  bool came_ = false;
  int starts_ = 0;
};

}  // namespace gyre::jobs::drivers::local::internal
