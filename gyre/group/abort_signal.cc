#include "gyre/group/abort_signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace gyre::group {
namespace {

/// Not FUTEX_PRIVATE: the word may lie in memory that other processes map.
void wake_all(std::atomic<std::uint32_t>* word) {
  static_assert(sizeof(*word) == sizeof(std::uint32_t));
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

bool AbortSignal::trigger(const Error& reason) {
  const MutexLock lock(mutex_);
  if (reason_) return false;
  reason_ = reason;
  triggered_.store(true, std::memory_order_release);
  notifier_.notify();
  for (auto* word : futexes_) wake_all(word);
  return true;
}

std::optional<Error> AbortSignal::reason() const {
  const MutexLock lock(mutex_);
  return reason_;
}

void AbortSignal::throw_reason() const { throw *reason(); }

void AbortSignal::add_futex(std::atomic<std::uint32_t>* word) {
  const MutexLock lock(mutex_);
  futexes_.push_back(word);
}

void AbortSignal::remove_futex(std::atomic<std::uint32_t>* word) {
  const MutexLock lock(mutex_);
  const auto found = std::find(futexes_.begin(), futexes_.end(), word);
  if (found != futexes_.end()) futexes_.erase(found);
}

void AbortSignal::add_notifier(const net::Notifier* notifier) {
  const MutexLock lock(mutex_);
  notifiers_.push_back(notifier);
}

void AbortSignal::remove_notifier(const net::Notifier* notifier) {
  const MutexLock lock(mutex_);
  std::erase(notifiers_, notifier);
}

void AbortSignal::wake_waiters() const {
  const MutexLock lock(mutex_);
  for (auto* word : futexes_) wake_all(word);
  for (const net::Notifier* notifier : notifiers_) notifier->notify();
}

}  // namespace gyre::group
