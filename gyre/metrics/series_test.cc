// Charts get few points that must show every peak.
#include "gyre/metrics/series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace gyre::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::int64_t> steps_of(const std::vector<Point>& points) {
  std::vector<std::int64_t> steps;
  for (const Point& point : points) steps.push_back(point.step);
  return steps;
}

TEST(Downsample, keeps_peaks_and_order_within_the_limit) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({i, i, std::sin(i * 0.001)});
  points[12'345].value = 50;
  points[77'777].value = -std::numeric_limits<double>::infinity();
  const auto kept = downsample(points, 2'000);
  EXPECT_LE(kept.size(), 2'000U);
  EXPECT_GT(kept.size(), 1'300U);
  const auto steps = steps_of(kept);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_THAT(steps, testing::Contains(12'345));
  EXPECT_THAT(steps, testing::Contains(77'777));
}

// Of a run without an end people must know whether to wait.
TEST(Run, says_how_it_ended) {
  metrics::Run run;
  EXPECT_EQ(end_of(run), "cut off: `gyre run` was killed, or its disk was full");
  run.is_under_way = true;
  EXPECT_EQ(end_of(run), "under way");
  run.notes["exit_code"] = "3";
  EXPECT_EQ(end_of(run), "ended with exit code 3");
}

TEST(Downsample, leaves_few_points_alone) {
  const std::vector<Point> points = {{1, 1, kNaN}, {2, 2, 0.5}};
  EXPECT_THAT(steps_of(downsample(points, 4)), testing::ElementsAre(1, 2));
  EXPECT_TRUE(downsample({}, 4).empty());
}

TEST(Downsample, keeps_every_failure_and_the_last_value) {
  // A chart that leaves out the NaN shows a healthy run.
  std::vector<Point> points;
  for (int i = 0; i < 20'000; ++i) points.push_back({i, i, i >= 10'000 && i < 10'004 ? kNaN : std::cos(i * 0.01)});
  points.push_back({20'000, 20'000, 0.5});
  auto kept = downsample(points, 2'000);
  EXPECT_LE(kept.size(), 2'000U);
  EXPECT_TRUE(std::ranges::any_of(kept, [](const Point& point) { return std::isnan(point.value); }));
  EXPECT_EQ(kept.back().value, 0.5);
  for (std::size_t i = 15'000; i < points.size(); ++i) points[i].value = kNaN;
  kept = downsample(points, 2'000);
  EXPECT_TRUE(std::isnan(kept.back().value));
  EXPECT_EQ(kept.back().step, 20'000);
  for (Point& point : points) point.value = kNaN;
  EXPECT_GT(downsample(points, 2'000).size(), 600U);
}

TEST(Downsample, keeps_finite_extremes_beside_infinities) {
  // An overflow is the highest value there is; the spike before it must not go with that.
  std::vector<Point> points;
  for (int i = 0; i < 20'000; ++i) points.push_back({i, i, i == 101 ? kInfinity : i == 102 ? 50.0 : std::cos(i)});
  const auto kept = downsample(points, 2'000);
  EXPECT_LE(kept.size(), 2'000U);
  EXPECT_THAT(steps_of(kept), testing::IsSupersetOf({101, 102}));
}

TEST(Downsample, says_what_selected_points_stand_for) {
  // Nearly all values are 1; the extremes that are kept would make 5 of them.
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({i, i, i % 40 == 0 ? 9.0 : i % 1'000 == 1 ? kNaN : 1.0});
  double sum = 0;
  std::size_t count = 0;
  for (const SelectedPoint& selected : select_points(points, 2'000)) {
    count += selected.count;
    if (selected.count > 0) sum += selected.mean * static_cast<double>(selected.count);
  }
  EXPECT_EQ(count, 99'900U);
  EXPECT_NEAR(sum / static_cast<double>(count), (2'500 * 9.0 + 97'400) / 99'900, 1e-9);
  const auto few = select_points(std::vector<Point>{{1, 1, kNaN}, {2, 2, 0.5}}, 4);
  EXPECT_EQ(few.front().count, 0U);
  EXPECT_EQ(few.back().count, 1U);
  EXPECT_EQ(few.back().mean, 0.5);
}

/// What a chart over steps shows of points, found as the definition says.
std::vector<bool> shown_over_steps(const std::vector<Point>& points) {
  std::vector<bool> shown(points.size(), true);
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t k = i + 1; k < points.size(); ++k) shown[i] = shown[i] && points[k].step > points[i].step;
  }
  return shown;
}

/// Steps that go back now and then, as a job's that goes on from checkpoints.
std::vector<Point> resumed_series(std::mt19937& random, int count) {
  const auto upto = [&random](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
  const int restarts = upto(6);
  std::vector<Point> points;
  std::int64_t step = upto(100);
  for (int i = 0; i < count; ++i) {
    step += 1 + upto(2);
    if (upto(count) < restarts) step -= upto(static_cast<int>(step));
    const double value = upto(200) == 0 ? kNaN : upto(1'000) - 500.0;
    points.push_back({step, i, value});
  }
  return points;
}

// A chart of a job that went on from a checkpoint: what a browser, which has the selection alone, makes of it must be
// what it would make of all points.
TEST(Downsample, shows_of_steps_that_were_done_again_the_last) {
  const auto seed = static_cast<unsigned>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::vector<Point> points = resumed_series(random, 700);
    const std::vector<bool> shown = shown_over_steps(points);
    const auto selected = select_points(points, 100);
    ASSERT_LE(selected.size(), 100U);
    std::vector<SelectedPoint> drawn;  // As web/src/data.ts does.
    double all = 0;
    std::size_t count = 0;
    for (const SelectedPoint& one : selected) {
      while (!drawn.empty() && drawn.back().point.step >= one.point.step) drawn.pop_back();
      drawn.push_back(one);
    }
    double lowest = kInfinity;
    double highest = -kInfinity;
    for (const auto& [point, weight, mean] : drawn) {
      ASSERT_TRUE(shown[static_cast<std::size_t>(point.time_us)]) << "position " << point.time_us;
      count += weight;
      if (weight > 0) all += static_cast<double>(weight) * mean;
      if (!std::isfinite(point.value)) continue;
      lowest = std::min(lowest, point.value);
      highest = std::max(highest, point.value);
    }
    double true_sum = 0;
    std::size_t true_count = 0;
    double true_lowest = kInfinity;
    double true_highest = -kInfinity;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!shown[i] || !std::isfinite(points[i].value)) continue;
      true_sum += points[i].value;
      ++true_count;
      true_lowest = std::min(true_lowest, points[i].value);
      true_highest = std::max(true_highest, points[i].value);
    }
    ASSERT_EQ(count, true_count);
    ASSERT_NEAR(all, true_sum, 1e-6);
    ASSERT_EQ(lowest, true_lowest);
    ASSERT_EQ(highest, true_highest);
    ASSERT_EQ(drawn.back().point.time_us, points.back().time_us);
  }
}

// A series whose steps go back all the time has no room for what is superseded.
TEST(Downsample, leaves_superseded_points_out_where_there_are_too_many) {
  std::vector<Point> points;
  for (int i = 0; i < 10'000; ++i)
    points.push_back({i - (i % 10 == 9 ? 2 : 0), i, i % 10 == 7 || i % 10 == 8 ? -1.0 : 1.0});
  const auto selected = select_points(points, 20);
  EXPECT_LE(selected.size(), 20U);
  std::size_t count = 0;
  for (const SelectedPoint& one : selected) {
    EXPECT_EQ(one.mean, 1.0);
    count += one.count;
  }
  EXPECT_EQ(count, 8'000U);
}

TEST(Downsample, takes_any_steps) {
  // The whole range of 64 bits, and one step logged again and again.
  std::vector<Point> points;
  for (int i = 0; i < 40; ++i) {
    points.push_back({i % 2 == 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max(),
                      i, static_cast<double>(i)});
  }
  const auto apart = downsample(points, 20);
  EXPECT_LE(apart.size(), 10U);
  EXPECT_THAT(apart, testing::Contains(testing::Field(&Point::value, 1)));
  EXPECT_EQ(apart.back().value, 39);
  for (Point& point : points) point.step = 7;
  const auto same = downsample(points, 20);
  ASSERT_EQ(same.size(), 3U);
  EXPECT_EQ(same.front().value, 0);
  EXPECT_EQ(same.back().value, 39);
}

}  // namespace
}  // namespace gyre::metrics
