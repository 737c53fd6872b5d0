// Ranks that leave together must not cost each of the others a message per rank, and one that leaves alone must be
// known at once.
#include "gyre/group/internal/rendezvous/exit_news.h"

#include <gtest/gtest.h>

#include "gyre/group/group.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

const SteadyClock::time_point kStart{std::chrono::hours(1)};

TEST(ExitNews, the_first_exit_goes_out_at_once_and_the_next_ones_together) {
  ExitNews news;
  EXPECT_TRUE(news.add({1, 0}, kStart));
  EXPECT_EQ(news.due(), kStart);
  EXPECT_EQ(news.take(kStart), (std::vector<Exit>{{1, 0}}));
  EXPECT_TRUE(news.add({2, 0}, kStart + milliseconds(1)));
  EXPECT_FALSE(news.add({3, 7}, kStart + milliseconds(2)));
  EXPECT_EQ(news.due(), kStart + ExitNews::kFirstPause);
  EXPECT_EQ(news.take(news.due()), (std::vector<Exit>{{2, 0}, {3, 7}}));
  EXPECT_TRUE(news.take(news.due()).empty());
}

TEST(ExitNews, pauses_grow_while_ranks_keep_leaving_and_start_again_after_a_quiet_time) {
  ExitNews news;
  int batches = 0;
  auto now = kStart;
  for (int rank = 0; rank < 5'000; ++rank, now += milliseconds(1)) {  // 5 s of ranks that leave.
    if (news.add({rank, 0}, now)) ++batches;
    EXPECT_LE(news.due() - now, ExitNews::kLongestPause);
    if (news.due() <= now) news.take(now);
  }
  EXPECT_LE(batches, 40);
  EXPECT_LT(2 * ExitNews::kLongestPause, Group::kLongestCauseWait);
  news.take(now);
  now += 2 * ExitNews::kLongestPause;
  news.add({1, 0}, now);
  EXPECT_EQ(news.due(), now);
  news.take(now);
  news.add({2, 0}, now);
  EXPECT_EQ(news.due(), now + ExitNews::kFirstPause);
}

}  // namespace
}  // namespace gyre::group
