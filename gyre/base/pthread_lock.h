#pragma once

#include <pthread.h>

namespace gyre {

/// Holds a mutex that a thread locks before it forks, and both processes unlock after it, which std::mutex forbids.
class PthreadLock {
 public:
  explicit PthreadLock(pthread_mutex_t& mutex) : mutex_(mutex) { ::pthread_mutex_lock(&mutex_); }
  ~PthreadLock() { ::pthread_mutex_unlock(&mutex_); }
  PthreadLock(const PthreadLock&) = delete;
  PthreadLock& operator=(const PthreadLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace gyre
