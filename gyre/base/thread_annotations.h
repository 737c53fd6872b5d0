#pragma once

#include <condition_variable>
#include <mutex>

// Clang's thread-safety analysis: every member guarded by a mutex says so, and a build with Clang
// proves it. Other compilers see nothing. https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#if defined(__clang__)
#define GYRE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define GYRE_THREAD_ATTRIBUTE(x)
#endif

#define GYRE_CAPABILITY(x) GYRE_THREAD_ATTRIBUTE(capability(x))
#define GYRE_SCOPED_CAPABILITY GYRE_THREAD_ATTRIBUTE(scoped_lockable)
#define GYRE_GUARDED_BY(x) GYRE_THREAD_ATTRIBUTE(guarded_by(x))
#define GYRE_REQUIRES(...) GYRE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define GYRE_EXCLUDES(...) GYRE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define GYRE_ACQUIRE(...) GYRE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define GYRE_RELEASE(...) GYRE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define GYRE_TRY_ACQUIRE(...) GYRE_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))

namespace gyre {

/// std::mutex that the analysis understands.
class GYRE_CAPABILITY("mutex") Mutex {
 public:
  void lock() GYRE_ACQUIRE() { mutex_.lock(); }
  void unlock() GYRE_RELEASE() { mutex_.unlock(); }
  bool try_lock() GYRE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope; may be released and taken again inside it.
class GYRE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GYRE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() GYRE_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() GYRE_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() GYRE_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

/// Waits are written as loops over a condition stated at the call, so that the analysis sees the
/// guarded members being read under their mutex.
class ConditionVariable {
 public:
  void wait(Mutex& mutex) GYRE_REQUIRES(mutex) { condition_.wait(mutex); }
  /// False when the time point passed without a wake-up.
  template <typename Clock, typename Duration>
  bool wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> when) GYRE_REQUIRES(mutex) {
    return condition_.wait_until(mutex, when) == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace gyre
