#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gyre/base/clock.h"

namespace gyre::store {

/// How much a reader asks for at once: what arrives in about three seconds, so that little is read again by whoever
/// goes on after it. Not thread-safe: one per reader.
class Pace {
 public:
  std::uint64_t next_bytes() const { return next_bytes_; }

  void arrived(std::uint64_t bytes, SteadyClock::duration took) {
    constexpr double kSeconds = 3;
    const double seconds = std::max(std::chrono::duration<double>(took).count(), 1e-3);
    const double most = std::min(static_cast<double>(bytes) / seconds * kSeconds, static_cast<double>(kMost));
    next_bytes_ = std::max(static_cast<std::uint64_t>(most), kLeast);
  }

 private:
  static constexpr std::uint64_t kLeast = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kMost = std::uint64_t{64} << 20;

  std::uint64_t next_bytes_ = 2 * kLeast;
};

}  // namespace gyre::store
