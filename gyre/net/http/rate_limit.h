#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>

#include "gyre/base/clock.h"

namespace gyre::net::http {

/// How many requests one client may send: `burst` at once, then `per_second`.
struct Rate {
  double per_second;
  double burst;
};

/// A token bucket per client. Remembers kMostClients; of more, those heard of least recently are forgotten (and start
/// afresh). Not thread-safe.
class RateLimiter {
 public:
  static constexpr std::size_t kMostClients = 4'096;

  explicit RateLimiter(Rate rate) : rate_(rate) {}

  /// False when `client` has used up its share.
  bool take(const std::string& client, SteadyClock::time_point now);
  /// How long until the next take() of a client that has just been refused can succeed.
  std::chrono::milliseconds pause() const;

 private:
  struct Bucket {
    double tokens;
    SteadyClock::time_point filled;
    std::list<std::string>::iterator recent;
  };

  Rate rate_;
  std::unordered_map<std::string, Bucket> buckets_;
  std::list<std::string> recent_;  // The most recent client first.
};

}  // namespace gyre::net::http
