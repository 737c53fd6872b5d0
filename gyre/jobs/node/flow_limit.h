#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gyre/base/clock.h"

namespace gyre::jobs::node {

/// How many bytes may be on their way over a connection at once, at most its window: about what it carries in half a
/// second, so that the renewals of leases, which come behind, never wait long.
class FlowLimit {
 public:
  /// A new connection.
  void start(std::uint64_t window) {
    window_ = window;
    limit_ = std::min(window, kFirst);
    taken_since_ = 0;
    since_ = SteadyClock::now();
  }
  std::uint64_t window() const { return window_; }
  std::uint64_t bytes() const { return limit_; }
  /// So many more have reached the other end.
  void took(std::uint64_t bytes) {
    taken_since_ += bytes;
    if (taken_since_ < limit_) return;
    const auto now = SteadyClock::now();
    if (now - since_ < kQuick) limit_ = std::min(2 * limit_, window_);
    if (now - since_ > kSlow) limit_ = std::max(limit_ / 2, std::min(kLowest, window_));
    taken_since_ = 0;
    since_ = now;
  }

 private:
  static constexpr std::uint64_t kFirst = std::uint64_t{64} << 10;
  static constexpr std::uint64_t kLowest = std::uint64_t{16} << 10;
  static constexpr std::chrono::milliseconds kQuick{250};
  static constexpr std::chrono::milliseconds kSlow{1'000};

  std::uint64_t window_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t taken_since_ = 0;
  SteadyClock::time_point since_;
};

}  // namespace gyre::jobs::node
