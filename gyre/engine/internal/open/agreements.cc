#include "gyre/engine/internal/open/agreements.h"

#include "gyre/base/clock.h"

namespace gyre::engine::internal {

void Agreements::add(std::uint64_t operations) {
  const MutexLock lock(mutex_);
  count_ += operations;
  changed_.notify_all();
}

void Agreements::end(const Error& failure) {
  const MutexLock lock(mutex_);
  end_ = failure;
  changed_.notify_all();
}

std::optional<std::uint64_t> Agreements::wait_for_more_than(std::uint64_t count, std::chrono::milliseconds patience) {
  const auto until = SteadyClock::now() + patience;
  const MutexLock lock(mutex_);
  while (count_ <= count && !end_) {
    if (!changed_.wait_until(mutex_, until)) break;
  }
  if (count_ > count || !end_) return count_;
  if (end_->code() == ErrorCode::kShutDown || end_->code() == ErrorCode::kPeerLeft) return std::nullopt;
  throw Error(*end_);
}

}  // namespace gyre::engine::internal
