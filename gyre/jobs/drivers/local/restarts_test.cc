// A node program that dies at once was started again without end and without a pause, and each turn lost a job.
#include "gyre/jobs/drivers/local/internal/restarts.h"

#include <gtest/gtest.h>

#include <vector>

namespace gyre::jobs::drivers::local::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Restarts, pauses_double_until_it_is_given_up) {
  Restarts restarts(seconds(1));
  Restarts::Time now{};
  std::vector<std::int64_t> pauses_s;
  while (!restarts.exhausted()) {
    restarts.started(now);
    restarts.ended(now);
    pauses_s.push_back(std::chrono::duration_cast<seconds>(restarts.next() - now).count());
    now = restarts.next();
  }
  EXPECT_EQ(pauses_s, (std::vector<std::int64_t>{0, 1, 2, 4, 8, 16}));
}

TEST(Restarts, a_node_program_that_was_killed_after_a_long_life_is_started_at_once) {
  Restarts restarts(seconds(1));
  Restarts::Time now{};
  for (int i = 0; i < 4; ++i) restarts.started(now);
  restarts.came(now);
  now += seconds(30);
  restarts.ended(now);
  EXPECT_TRUE(restarts.is_due(now));
  EXPECT_FALSE(restarts.exhausted());
}

TEST(Restarts, a_node_program_that_has_not_come_gets_a_second) {
  Restarts restarts(seconds(1));
  Restarts::Time now{};
  restarts.started(now);
  EXPECT_FALSE(restarts.is_due(now + milliseconds(999)));
  EXPECT_TRUE(restarts.is_due(now + milliseconds(1'000)));
}

}  // namespace
}  // namespace gyre::jobs::drivers::local::internal
