// Every wait of Gyre ends at a Deadline; one that is off by a rounding spins or hangs.
#include "gyre/base/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace gyre {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(deadline, never_never_passes) {
  const Deadline never = Deadline::never();
  EXPECT_FALSE(never.passed());
  EXPECT_FALSE(never.when().has_value());
  EXPECT_EQ(never.poll_timeout_ms(), -1);
  EXPECT_EQ(never.poll_timeout_ms(250), 250);
}

TEST(deadline, one_in_the_past_has_passed_and_waits_for_nothing) {
  const Deadline past = Deadline::after(milliseconds(-1));
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.poll_timeout_ms(), 0);
  EXPECT_TRUE(Deadline::after(milliseconds(0)).passed());
}

TEST(deadline, the_time_left_is_rounded_up_so_that_a_wait_does_not_spin) {
  const Deadline soon = Deadline::after(hours(1));
  EXPECT_FALSE(soon.passed());
  EXPECT_EQ(soon.poll_timeout_ms(500), 500);
  EXPECT_GT(soon.poll_timeout_ms(), 3'590'000);
  EXPECT_LE(soon.poll_timeout_ms(), 3'600'000);
}

TEST(deadline, more_milliseconds_than_poll_takes_are_cut) {
  EXPECT_EQ(Deadline::after(hours(24 * 365)).poll_timeout_ms(), std::numeric_limits<int>::max());
}

TEST(deadline, one_further_away_than_the_clock_reaches_never_passes) {
  EXPECT_FALSE(Deadline::after(milliseconds::max()).passed());
  EXPECT_TRUE(Deadline::after(milliseconds::min()).passed());
}

TEST(wall_clock, shows_this_century_in_microseconds) {
  EXPECT_GT(wall_clock_us(), 1'700'000'000'000'000);
  EXPECT_LT(wall_clock_us(), 4'100'000'000'000'000);
}

}  // namespace
}  // namespace gyre
