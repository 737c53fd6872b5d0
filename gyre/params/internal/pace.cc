#include "gyre/params/internal/pace.h"

namespace gyre::params::internal {

void Pace::expect() {
  const MutexLock lock(mutex_);
  ++unanswered_;
}

void Pace::answer() {
  const MutexLock lock(mutex_);
  --unanswered_;
  changed_.notify_one();
}

void Pace::wait(group::AbortSignal& failure) {
  const MutexLock lock(mutex_);
  while (unanswered_ >= kMostUnanswered) {
    failure.throw_if_triggered();
    changed_.wait(mutex_);
  }
}

void Pace::wake() {
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

}  // namespace gyre::params::internal
