#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "gyre/base/thread_annotations.h"

namespace gyre::net::http::internal {

/// A few threads for what may block. Thread-safe.
class WorkerPool {
 public:
  /// Error(kResourceExhausted) when the system gives no thread.
  WorkerPool(std::size_t threads, std::size_t most_waiting);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// `work` must not throw. False, and `work` is not run, when too much waits already or after stop().
  bool submit(std::function<void()> work);

  /// Waits for what runs now and drops what has not begun. Idempotent; not for a thread of the pool.
  void stop();

 private:
  void run();

  std::size_t most_waiting_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> waiting_ GYRE_GUARDED_BY(mutex_);
  bool stopped_ GYRE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace gyre::net::http::internal
