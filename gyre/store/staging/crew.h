#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::store {

/// Threads that end together: the first failure of one stops all.
class Crew {
 public:
  Crew() = default;
  ~Crew() {
    stop_.request_stop();
    for (std::thread& thread : threads_) thread.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::stop_token stop() const { return stop_.get_token(); }
  void request_stop() { stop_.request_stop(); }

  void start(std::string_view purpose, std::function<void()> body) GYRE_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      ++running_;
    }
    threads_.push_back(start_thread(purpose, [this, body = std::move(body)] {
      try {
        body();
      } catch (...) {
        note_failure(std::current_exception());
        stop_.request_stop();  // Only now: those that it ends fail, too, and not for a reason of their own.
      }
      const MutexLock lock(mutex_);
      --running_;
      ended_.notify_all();
    }));
  }

  /// Whether all have ended, after at most `longest`.
  bool wait(std::chrono::milliseconds longest) GYRE_EXCLUDES(mutex_) {
    const auto until = SteadyClock::now() + longest;
    const MutexLock lock(mutex_);
    while (running_ > 0 && SteadyClock::now() < until) ended_.wait_until(mutex_, until);
    return running_ == 0;
  }

  /// The first failure.
  std::exception_ptr failure() GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return failure_;
  }

 private:
  void note_failure(const std::exception_ptr& failure) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!failure_) failure_ = failure;
  }

  std::stop_source stop_;
  Mutex mutex_;
  ConditionVariable ended_;
  int running_ GYRE_GUARDED_BY(mutex_) = 0;
  std::exception_ptr failure_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace gyre::store
