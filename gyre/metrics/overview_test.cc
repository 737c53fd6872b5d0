// Who watches a run must see which rank is behind, at rates that are those of now, without the run's length in memory.
#include "gyre/metrics/overview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gyre/metrics/news.h"

namespace gyre::metrics {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

std::vector<int> numbers_of(const std::vector<RankNow>& ranks) {
  std::vector<int> numbers;
  for (const RankNow& now : ranks) numbers.push_back(now.rank);
  return numbers;
}

TEST(Overview, shows_the_slowest_first_at_the_rates_of_the_last_ten_seconds) {
  Overview overview;
  for (int second = 0; second <= 60; ++second) {
    for (int rank = 0; rank < 3; ++rank) {
      // Rank 1 stands still in the last half minute.
      const int steps = rank == 1 ? std::min(second, 30) * 10 : second * 10 + 5 * rank;
      overview.sample({"loss", rank, steps, second * kSecond, 0.5});
    }
  }
  const auto ranks = overview.ranks();
  EXPECT_THAT(numbers_of(ranks), testing::ElementsAre(1, 0, 2));
  EXPECT_EQ(ranks[0].step, 300);
  EXPECT_DOUBLE_EQ(ranks[0].steps_per_second.value(), 0.0);
  EXPECT_DOUBLE_EQ(ranks[1].steps_per_second.value(), 10.0);
  EXPECT_EQ(ranks[1].time_us, 60 * kSecond);
}

TEST(Overview, takes_optimizers_steps_where_nothing_is_logged_and_their_wait_for_the_exchange) {
  Overview overview;
  for (int second = 0; second <= 5; ++second) {
    overview.sample({"gyre/steps", 4, 7, second * kSecond, 20.0 * second});
    overview.sample({"gyre/exposed_seconds", 4, 7, second * kSecond, 0.25 * second});
    overview.sample({"gyre/waiting_seconds", 4, 7, second * kSecond, 0.9 * second});
  }
  overview.sample({"gyre/cpu_cores", 4, 0, 0, 1.5});
  overview.sample({"gyre/memory_bytes", 5, 0, 0, 4096.0});
  const auto ranks = overview.ranks();
  EXPECT_THAT(numbers_of(ranks), testing::ElementsAre(5, 4)) << "a rank without a step is the slowest";
  EXPECT_FALSE(ranks[0].step.has_value());
  EXPECT_EQ(ranks[0].memory_bytes, 4096.0);
  EXPECT_EQ(ranks[1].step, 100);
  EXPECT_DOUBLE_EQ(ranks[1].steps_per_second.value(), 20.0);
  EXPECT_DOUBLE_EQ(ranks[1].waiting.value(), 0.25);
  EXPECT_EQ(ranks[1].cpu_cores, 1.5);
}

// A hung training must not look like one that runs: the launcher's samples go on, and are the clock.
TEST(Overview, a_rank_that_hangs_has_no_rates_after_ten_seconds_and_no_newer_value) {
  Overview overview;
  for (int i = 0; i <= 200; ++i) overview.sample({"loss", 0, i, i * kSecond / 10, 1});
  overview.sample({"gyre/exposed_seconds", 0, 199, 19 * kSecond, 1.0});
  overview.sample({"gyre/steps", 0, 199, 19 * kSecond, 199});
  overview.sample({"gyre/exposed_seconds", 0, 200, 20 * kSecond, 1.5});
  overview.sample({"gyre/cpu_cores", 0, 200, 25 * kSecond, 0.0});
  EXPECT_DOUBLE_EQ(overview.ranks()[0].steps_per_second.value(), 5.0);
  overview.sample({"gyre/steps", 0, 200, 26 * kSecond, 199});
  overview.sample({"gyre/cpu_cores", 0, 200, 30 * kSecond, 0.0});
  const RankNow now = overview.ranks()[0];
  EXPECT_EQ(now.steps_per_second, 0.0);
  EXPECT_EQ(now.time_us, 20 * kSecond);
  EXPECT_EQ(now.step, 200);
  EXPECT_FALSE(now.waiting.has_value()) << "what is not told is not known";
  EXPECT_TRUE(now.tells_waits);
}

TEST(Overview, a_training_of_long_steps_keeps_its_rate_between_them) {
  Overview overview;
  for (int i = 0; i <= 3; ++i) overview.sample({"loss", 0, i, i * 60 * kSecond, 1});
  overview.sample({"gyre/cpu_cores", 0, 3, 235 * kSecond, 1.0});
  EXPECT_DOUBLE_EQ(overview.ranks()[0].steps_per_second.value(), 1.0 / 60);
  overview.sample({"gyre/cpu_cores", 0, 3, 280 * kSecond, 1.0});
  EXPECT_DOUBLE_EQ(overview.ranks()[0].steps_per_second.value(), 1.0 / 160);
  overview.sample({"gyre/cpu_cores", 0, 3, 300 * kSecond, 1.0});
  EXPECT_EQ(overview.ranks()[0].steps_per_second, 0.0);
}

TEST(Overview, a_pause_before_a_hang_does_not_hide_it) {
  Overview overview;
  for (int i = 0; i <= 50; ++i) overview.sample({"loss", 0, i, i * kSecond / 10, 1});
  for (int i = 51; i <= 53; ++i) overview.sample({"loss", 0, i, 25 * kSecond + i * kSecond / 10, 1});
  overview.sample({"gyre/cpu_cores", 0, 53, 45 * kSecond, 0.0});
  EXPECT_EQ(overview.ranks()[0].steps_per_second, 0.0) << "25 s of a pause are not its usual step";
}

TEST(Overview, begins_anew_where_a_rank_does) {
  Overview overview;
  overview.sample({"loss", 0, 100, 1 * kSecond, 1});
  overview.sample({"loss", 0, 200, 2 * kSecond, 1});
  overview.sample({"loss", 0, 50, 10 * kSecond, 1});
  EXPECT_FALSE(overview.ranks()[0].steps_per_second.has_value());
  overview.sample({"loss", 0, 60, 11 * kSecond, 1});
  EXPECT_DOUBLE_EQ(overview.ranks()[0].steps_per_second.value(), 10.0);
}

TEST(Overview, counts_the_steps_of_what_is_logged_most_often) {
  Overview overview;
  overview.sample({"parameters", 0, 0, 0, 1e6});
  for (int second = 1; second <= 30; ++second) {
    overview.sample({"loss", 0, second * 100, second * kSecond, 1});
    overview.sample({"lr", 0, second * 100, second * kSecond, 1});
    if (second % 10 == 0) overview.sample({"validation", 0, second / 10, second * kSecond, 1});
  }
  EXPECT_EQ(overview.ranks()[0].step, 3'000);
  EXPECT_DOUBLE_EQ(overview.ranks()[0].steps_per_second.value(), 100.0);
}

TEST(Overview, a_rank_that_starts_again_has_no_step_of_the_start_before) {
  Overview overview;
  overview.event(to_line({.kind = News::Kind::kStarted, .rank = 0, .process = 10}));
  EXPECT_TRUE(overview.ranks().empty()) << "nothing is known of it yet";
  for (int second = 0; second <= 5; ++second) {
    for (int rank = 0; rank < 2; ++rank) {
      overview.sample({"loss", rank, 10 * second, second * kSecond, 0.5});
      overview.sample({"gyre/waiting_seconds", rank, 10 * second, second * kSecond, 0.5 * second});
    }
  }
  overview.event(to_line({.kind = News::Kind::kRestarting, .code = 1}));
  overview.event(to_line({.kind = News::Kind::kStarted, .rank = 0, .process = 11}));
  const auto ranks = overview.ranks();
  EXPECT_THAT(numbers_of(ranks), testing::ElementsAre(0, 1));
  EXPECT_FALSE(ranks[0].step || ranks[0].steps_per_second || ranks[0].waiting || ranks[0].tells_waits);
  EXPECT_EQ(ranks[1].step, 50) << "it goes on";
  EXPECT_EQ(overview.logged().at("loss").value, 0.5);
}

TEST(Overview, follows_the_next_phase_of_a_training) {
  Overview overview;
  for (int i = 0; i < 2'000; ++i) overview.sample({"first/loss", 0, i, i * 10'000LL, 1});
  for (int i = 2'000; i < 2'400; ++i) overview.sample({"second/loss", 0, i, i * 10'000LL, 1});
  EXPECT_EQ(overview.ranks()[0].step, 2'399);
  EXPECT_NEAR(overview.ranks()[0].steps_per_second.value(), 100.0, 0.1);
}

TEST(Overview, has_the_rate_of_a_program_that_logs_without_a_pause) {
  Overview overview;
  for (int i = 0; i <= 1'000'000; ++i) overview.sample({"loss", 0, i, i * 20LL, 1});  // 20 s.
  EXPECT_NEAR(overview.ranks()[0].steps_per_second.value(), 50'000.0, 1.0);
}

TEST(Overview, keeps_the_latest_value_of_the_lowest_rank_under_each_name) {
  Overview overview;
  overview.sample({"loss", 3, 1, 1, 3.0});
  overview.sample({"loss", 1, 1, 1, 1.0});
  overview.sample({"loss", 3, 2, 2, 30.0});
  overview.sample({"loss", 1, 2, 2, std::numeric_limits<double>::infinity()});
  overview.sample({"gyre/steps", 1, 2, 2, 2});
  overview.note("exit_code", "0");
  ASSERT_EQ(overview.logged().size(), 1U);
  EXPECT_EQ(overview.logged().at("loss").value, std::numeric_limits<double>::infinity());
  EXPECT_EQ(overview.notes().at("exit_code"), "0");
}

}  // namespace
}  // namespace gyre::metrics
