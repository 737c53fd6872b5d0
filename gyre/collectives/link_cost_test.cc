// Why: the schedule decides how long an exchange between hosts takes and in which order it sums. A size from which on
// the ring was taken whatever the number of hosts made it wait 2,000 latencies for 131 bytes each.
#include "gyre/collectives/link_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/test_support.h"

namespace gyre::collectives {
namespace {

constexpr std::uint64_t kKilobyte = 1024;
constexpr std::uint64_t kMegabyte = 1024 * kKilobyte;

double seconds(LinkSchedule schedule, int members, std::uint64_t bytes, const LinkRates& rates) {
  return link_cost(schedule, members, static_cast<double>(bytes)).seconds(rates);
}

TEST(LinkCost, follows_its_table) {
  const LinkCost doubling = link_cost(LinkSchedule::kDoubling, 5, 1000);
  EXPECT_EQ(doubling.messages, 4);
  EXPECT_DOUBLE_EQ(doubling.bytes_in_turn, 4000);
  EXPECT_DOUBLE_EQ(doubling.bytes_combined, 3000);
  const LinkCost ring = link_cost(LinkSchedule::kRing, 5, 1000);
  EXPECT_EQ(ring.messages, 8);
  EXPECT_DOUBLE_EQ(ring.bytes_in_turn, 1600);
  const LinkCost halving = link_cost(LinkSchedule::kHalving, 8, 1000);
  EXPECT_EQ(halving.messages, 6);
  EXPECT_DOUBLE_EQ(halving.bytes_in_turn, 1750);
  EXPECT_DOUBLE_EQ(link_cost(LinkSchedule::kHalving, 5, 1000).bytes_in_turn, 3500);
  EXPECT_EQ(link_cost(LinkSchedule::kRing, 1, 1000).messages, 0);
}

TEST(LinkCost, chooses_for_a_few_hosts_as_was_measured) {
  for (const int members : {2, 4}) {
    EXPECT_EQ(choose_link_schedule(members, 64 * kKilobyte), LinkSchedule::kDoubling) << members;
    EXPECT_EQ(choose_link_schedule(members, 256 * kKilobyte), LinkSchedule::kRing) << members;
  }
}

TEST(LinkCost, does_not_send_a_thousand_hosts_around_a_ring_for_kilobytes) {
  for (const int members : {1000, 1024}) {
    EXPECT_EQ(choose_link_schedule(members, 4), LinkSchedule::kDoubling) << members;
    EXPECT_EQ(choose_link_schedule(members, 128 * kKilobyte), LinkSchedule::kHalving) << members;
    EXPECT_EQ(choose_link_schedule(members, 8 * kMegabyte), LinkSchedule::kHalving) << members;
    EXPECT_EQ(choose_link_schedule(members, 1024 * kMegabyte), LinkSchedule::kRing) << members;
  }
}

struct Sample {
  int members;
  std::uint64_t bytes;
  LinkRates rates;
};

Sample random_sample(Random& random) {
  const auto between = [&](double low, double high) { return low * std::pow(high / low, random.uniform()); };
  return {.members = static_cast<int>(between(2, 5000)),
          .bytes = static_cast<std::uint64_t>(between(1, 4e9)),
          .rates = {.latency_seconds = between(1e-6, 1e-2),
                    .bytes_per_second = between(1e6, 1e11),
                    .combined_bytes_per_second = between(1e8, 1e11)}};
}

TEST(LinkCost, is_never_far_from_the_best_for_any_hosts_sizes_and_links) {
  Random random(testing::test_seed(), 71);
  for (int i = 0; i < 20'000; ++i) {
    const auto [members, bytes, rates] = random_sample(random);
    const double chosen = seconds(choose_link_schedule(members, bytes, rates), members, bytes, rates);
    double best = chosen;
    for (const LinkSchedule schedule : {LinkSchedule::kDoubling, LinkSchedule::kRing, LinkSchedule::kHalving}) {
      best = std::min(best, seconds(schedule, members, bytes, rates));
    }
    ASSERT_LE(chosen, best * kGainOfHalving * (1 + 1e-12))
        << members << " hosts, " << bytes << " bytes, " << rates.latency_seconds << " s, " << rates.bytes_per_second
        << " B/s; seed " << testing::test_seed();
  }
}

TEST(LinkCost, thresholds_say_what_is_chosen) {
  Random random(testing::test_seed(), 72);
  for (int i = 0; i < 2'000; ++i) {
    const auto [members, bytes, rates] = random_sample(random);
    const LinkThresholds thresholds = link_thresholds(members, rates);
    const LinkSchedule expected = bytes <= thresholds.doubling_bytes  ? LinkSchedule::kDoubling
                                  : bytes <= thresholds.halving_bytes ? LinkSchedule::kHalving
                                                                      : LinkSchedule::kRing;
    ASSERT_EQ(choose_link_schedule(members, bytes, rates), expected)
        << members << " hosts, " << bytes << " bytes; seed " << testing::test_seed();
  }
}

}  // namespace
}  // namespace gyre::collectives
