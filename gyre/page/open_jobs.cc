#include "gyre/page/open_jobs.h"

#include <algorithm>

namespace gyre::page {

std::shared_ptr<JobView> OpenJobs::find(const std::string& id, const std::function<std::shared_ptr<JobView>()>& make) {
  const auto now = SteadyClock::now();
  std::list<Open> closed;  // Destroyed without the lock.
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(open_, id, &Open::id);
  if (found == open_.end()) {
    open_.push_front({.id = id, .job = make(), .asked = now});
  } else {
    open_.splice(open_.begin(), open_, found);
    open_.front().asked = now;
  }
  while (open_.size() > kMost || now - open_.back().asked > kLongestUnasked) {
    closed.splice(closed.end(), open_, std::prev(open_.end()));
  }
  return open_.front().job;
}

}  // namespace gyre::page
