// One client that asks too much must not cost the others anything, nor memory.
#include "gyre/net/http/rate_limit.h"

#include <gtest/gtest.h>

namespace gyre::net::http {
namespace {

using std::chrono::milliseconds;

TEST(RateLimiter, a_burst_passes_and_then_the_rate_holds) {
  RateLimiter limiter({.per_second = 10, .burst = 3});
  const SteadyClock::time_point start{};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.take("a", start));
  EXPECT_FALSE(limiter.take("a", start));
  EXPECT_TRUE(limiter.take("b", start));
  EXPECT_FALSE(limiter.take("a", start + milliseconds(99)));
  EXPECT_TRUE(limiter.take("a", start + milliseconds(150)));
  EXPECT_FALSE(limiter.take("a", start + milliseconds(190)));
  EXPECT_EQ(limiter.pause(), milliseconds(100));
}

TEST(RateLimiter, a_pause_never_saves_up_more_than_a_burst) {
  RateLimiter limiter({.per_second = 10, .burst = 3});
  const SteadyClock::time_point start{};
  EXPECT_TRUE(limiter.take("a", start));
  const auto later = start + std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.take("a", later));
  EXPECT_FALSE(limiter.take("a", later));
}

TEST(RateLimiter, many_clients_push_out_the_quietest_only) {
  RateLimiter limiter({.per_second = 0.001, .burst = 1});
  const SteadyClock::time_point start{};
  EXPECT_TRUE(limiter.take("quiet", start));
  for (std::size_t i = 0; i + 1 < RateLimiter::kMostClients; ++i) EXPECT_TRUE(limiter.take(std::to_string(i), start));
  EXPECT_FALSE(limiter.take("1", start));
  EXPECT_TRUE(limiter.take("new", start));
  EXPECT_TRUE(limiter.take("quiet", start));  // Forgotten.
  EXPECT_FALSE(limiter.take("1", start));     // Not forgotten: it was heard of since.
}

}  // namespace
}  // namespace gyre::net::http
