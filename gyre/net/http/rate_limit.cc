#include "gyre/net/http/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace gyre::net::http {

bool RateLimiter::take(const std::string& client, SteadyClock::time_point now) {
  auto found = buckets_.find(client);
  if (found == buckets_.end()) {
    if (buckets_.size() >= kMostClients) {
      buckets_.erase(recent_.back());
      recent_.pop_back();
    }
    recent_.push_front(client);
    found = buckets_.emplace(client, Bucket{rate_.burst, now, recent_.begin()}).first;
  }
  Bucket& bucket = found->second;
  recent_.splice(recent_.begin(), recent_, bucket.recent);
  const double seconds = std::chrono::duration<double>(now - bucket.filled).count();
  bucket.tokens = std::min(rate_.burst, bucket.tokens + std::max(0.0, seconds) * rate_.per_second);
  bucket.filled = now;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

std::chrono::milliseconds RateLimiter::pause() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(1000 / rate_.per_second)));
}

}  // namespace gyre::net::http
