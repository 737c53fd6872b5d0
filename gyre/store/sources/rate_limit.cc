#include "gyre/store/sources/rate_limit.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace gyre::store {

void RateLimit::pass(std::uint64_t bytes, const std::stop_token& stop) {
  if (bytes_per_second_ == 0) {
    passed_bytes_ += bytes;
    return;
  }
  const auto cost = std::chrono::duration_cast<SteadyClock::duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_)));
  SteadyClock::time_point until;
  {
    const MutexLock lock(mutex_);
    free_at_ = std::max(free_at_, SteadyClock::now()) + cost;
    until = free_at_;
  }
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_until(lock, stop, until, [] { return false; });
  passed_bytes_ += bytes;
}

}  // namespace gyre::store
