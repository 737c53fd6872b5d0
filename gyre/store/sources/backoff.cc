#include "gyre/store/sources/backoff.h"

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <span>

namespace gyre::store {

namespace {

constexpr std::chrono::milliseconds kFirst{300};
constexpr std::chrono::milliseconds kLongest{30'000};
constexpr std::chrono::milliseconds kLong{3'000};

/// Waits differ from reader to reader; what is read does not depend on them.
std::uint64_t draw_seed() {
  std::array<std::byte, 8> bytes{};
  fill_with_secure_random(bytes);
  return std::bit_cast<std::uint64_t>(bytes);
}

}  // namespace

Backoff::Backoff(std::chrono::milliseconds patience)
    : patience_(patience), since_(SteadyClock::now()), last_(kFirst), random_(draw_seed()) {}

void Backoff::progress() {
  since_ = SteadyClock::now();
  last_ = kFirst;
}

bool Backoff::wait(const Setback& setback, const std::stop_token& stop, const std::function<void()>& long_wait) {
  const auto span = static_cast<std::uint64_t>(std::max<std::int64_t>(last_.count() * 3 - kFirst.count(), 1));
  last_ = std::min(kFirst + std::chrono::milliseconds(random_.below(span)), kLongest);
  const auto until = SteadyClock::now() + std::max(last_, setback.wait);
  if (until - since_ > patience_) return false;
  if (long_wait && until - since_ > kLong) long_wait();
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_until(lock, stop, until, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace gyre::store
