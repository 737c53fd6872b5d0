// An order must be a permutation for every count, and nearly as mixed as one that was drawn with memory.
#include "gyre/data/shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace gyre::data {
namespace {

template <typename Order>
std::vector<std::uint64_t> all_of(const Order& order, std::uint64_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(order.at(i));
  return numbers;
}

void expect_permutation(std::vector<std::uint64_t> numbers, const std::string& of) {
  std::ranges::sort(numbers);
  for (std::uint64_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i) << of;
}

TEST(Shuffle, every_number_comes_once_for_any_count) {
  for (std::uint64_t count = 1; count <= 300; ++count) {
    expect_permutation(all_of(Shuffle(count, 7, count % 3), count), "count " + std::to_string(count));
  }
  expect_permutation(all_of(Shuffle(100'003, 1, 2), 100'003), "a hundred thousand");
}

TEST(Shuffle, ten_to_the_nine_samples_take_no_memory_and_stay_in_range) {
  constexpr std::uint64_t kCount = 1'000'000'000;
  const Shuffle shuffle(kCount, 3, 4);
  std::vector<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 10'000; ++i) seen.push_back(shuffle.at(i * 99'991));
  for (const std::uint64_t number : seen) EXPECT_LT(number, kCount);
  std::ranges::sort(seen);
  EXPECT_TRUE(std::ranges::adjacent_find(seen) == seen.end()) << "one number came twice";
}

TEST(Shuffle, seeds_and_streams_give_other_orders) {
  const auto order = all_of(Shuffle(1000, 1, 0), 1000);
  EXPECT_NE(order, all_of(Shuffle(1000, 2, 0), 1000));
  EXPECT_NE(order, all_of(Shuffle(1000, 1, 1), 1000));
  EXPECT_NE(order, all_of(Shuffle(1000, 1, std::uint64_t{1} << 32), 1000));
  EXPECT_EQ(order, all_of(Shuffle(1000, 1, 0), 1000));
}

// Where a number lands, over many streams, is uniform: chi squared over 16 cells with 15 degrees of freedom
// exceeds 44.3 once in 10,000 times, and the streams here are always the same.
TEST(Shuffle, each_number_lands_everywhere_equally_often) {
  constexpr std::uint64_t kCount = 16;
  constexpr std::uint64_t kStreams = 16'000;
  for (const std::uint64_t number : {0U, 5U, 15U}) {
    std::array<double, kCount> times{};
    for (std::uint64_t stream = 0; stream < kStreams; ++stream) times.at(Shuffle(kCount, 9, stream).at(number)) += 1;
    double chi_squared = 0;
    for (const double count : times) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi_squared, 44.3) << "number " << number;
  }
}

TEST(Shuffle, neighbours_are_torn_apart) {
  constexpr std::uint64_t kCount = 10'000;
  const auto order = all_of(Shuffle(kCount, 5, 0), kCount);
  double distance = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    distance += std::abs(static_cast<double>(order[i]) - static_cast<double>(order[i - 1]));
  }
  EXPECT_NEAR(distance / kCount, kCount / 3.0, kCount / 50.0)
      << "two numbers drawn at random are a third apart on average";
}

}  // namespace
}  // namespace gyre::data
