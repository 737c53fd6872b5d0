#include "gyre/store/staging/transfer_limit.h"

#include <algorithm>
#include <chrono>

namespace gyre::store {

namespace {

constexpr double kFirst = 8;
constexpr std::chrono::seconds kBetweenHalvings{1};
constexpr std::chrono::milliseconds kLookForStop{50};

}  // namespace

TransferLimit::TransferLimit(int most) : most_(most), limit_(std::min<double>(most, kFirst)) {}

bool TransferLimit::begin(const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  while (under_way_ >= static_cast<int>(limit_)) {
    if (stop.stop_requested()) return false;
    freed_.wait_until(mutex_, SteadyClock::now() + kLookForStop);
  }
  if (stop.stop_requested()) return false;
  ++under_way_;
  return true;
}

void TransferLimit::end() {
  const MutexLock lock(mutex_);
  --under_way_;
  freed_.notify_one();
}

void TransferLimit::succeeded() {
  const MutexLock lock(mutex_);
  limit_ = std::min(most_, limit_ + 1 / limit_);
  freed_.notify_one();
}

void TransferLimit::overloaded() {
  const MutexLock lock(mutex_);
  const auto now = SteadyClock::now();
  if (now - lowered_ < kBetweenHalvings) return;
  lowered_ = now;
  limit_ = std::max(1.0, limit_ / 2);
}

int TransferLimit::limit() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(limit_);
}

}  // namespace gyre::store
