#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace gyre {

using SteadyClock = std::chrono::steady_clock;

/// A moment after which a wait has failed. Copyable; passed by value down every call that may wait.
class Deadline {
 public:
  /// Durations beyond a century, in either direction, count as one.
  static Deadline after(std::chrono::milliseconds duration);
  static Deadline never() { return Deadline(std::nullopt); }

  bool passed() const { return when_ && SteadyClock::now() >= *when_; }
  /// For poll(2): milliseconds left, rounded up, at most `longest`; -1 for never when `longest` is -1.
  int poll_timeout_ms(int longest = -1) const;
  std::optional<SteadyClock::time_point> when() const { return when_; }

 private:
  explicit Deadline(std::optional<SteadyClock::time_point> when) : when_(when) {}

  std::optional<SteadyClock::time_point> when_;
};

/// Microseconds of CLOCK_REALTIME since the epoch; for files that other programs read.
std::int64_t wall_clock_us();

}  // namespace gyre
