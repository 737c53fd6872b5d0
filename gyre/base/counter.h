#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "gyre/base/clock.h"

namespace gyre {

/// A number that one thread at a time writes, without the cost of a lock or of an atomic addition, and any thread may
/// read at any time. A copy has the value of the moment.
class Counter {
 public:
  Counter() = default;
  Counter(const Counter& other) noexcept : value_(other.value()) {}
  Counter& operator=(const Counter& other) noexcept {
    value_.store(other.value(), std::memory_order_relaxed);
    return *this;
  }

  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  operator std::uint64_t() const { return value(); }  // NOLINT(google-explicit-constructor): reads like a number.

  Counter& operator+=(std::uint64_t more) {
    value_.store(value() + more, std::memory_order_relaxed);
    return *this;
  }
  std::uint64_t operator++() {
    *this += 1;
    return value();
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Adds the nanoseconds of a scope to a counter. Two readings of the clock, some 50 ns: not for what takes less than a
/// few microseconds.
class CountedTime {
 public:
  explicit CountedTime(Counter& total_ns) : total_ns_(total_ns), begin_(SteadyClock::now()) {}
  ~CountedTime() {
    const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - begin_);
    total_ns_ += static_cast<std::uint64_t>(passed.count());
  }
  CountedTime(const CountedTime&) = delete;
  CountedTime& operator=(const CountedTime&) = delete;

 private:
  Counter& total_ns_;
  const SteadyClock::time_point begin_;
};

}  // namespace gyre
