#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/notifier.h"

namespace gyre::group {

/// Says, once and for good, that the group has failed and why. Everybody who waits looks at it: in
/// poll(2) through fd(), in shared memory through triggered() and a futex wake. The first reason wins.
/// Thread-safe. Others than the group's back end call Group::abort(), which reaches every rank.
class AbortSignal {
 public:
  /// Keeps `reason` unless there is one already, and wakes all waiters. True when it was the first.
  bool trigger(const Error& reason);

  bool triggered() const { return triggered_.load(std::memory_order_acquire); }
  void throw_if_triggered() const {
    if (triggered()) throw_reason();
  }
  std::optional<Error> reason() const;

  /// Readable from the moment it is triggered.
  int fd() const { return notifier_.fd(); }

  /// Futex words that waiters of this process may sleep on; woken by trigger() and wake_waiters(). Their values do
  /// not change, so a wake between a waiter's last look at triggered() and its sleep is lost: sleep in slices of at
  /// most kLongestFutexSleep and look again.
  static constexpr std::chrono::milliseconds kLongestFutexSleep{100};
  void add_futex(std::atomic<std::uint32_t>* word);
  void remove_futex(std::atomic<std::uint32_t>* word);
  /// Descriptors that waiters of this process may sleep on, notified by wake_waiters() and never cleared here.
  void add_notifier(const net::Notifier* notifier);
  void remove_notifier(const net::Notifier* notifier);
  /// Makes the sleepers look around again (a rank has left, say).
  void wake_waiters() const;

 private:
  [[noreturn]] void throw_reason() const;

  std::atomic<bool> triggered_{false};
  net::Notifier notifier_;
  mutable Mutex mutex_;
  std::optional<Error> reason_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::atomic<std::uint32_t>*> futexes_ GYRE_GUARDED_BY(mutex_);
  std::vector<const net::Notifier*> notifiers_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::group
