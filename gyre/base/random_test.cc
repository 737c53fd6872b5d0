// The order of training data is ours for ever: a changed bit here would make old runs unrepeatable.
#include "gyre/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace gyre {
namespace {

using testing::ElementsAre;

TEST(random, philox_gives_the_known_answers_of_its_authors) {
  // Random123's kat_vectors, philox4x32 with 10 rounds.
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_THAT(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD));
  EXPECT_THAT(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
              ElementsAre(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1));
}

TEST(random, a_sequence_is_golden) {
  Random random(42);
  for (const std::uint32_t expected : {0x9CEAF053U, 0x77F5493BU, 0x12BF50ADU, 0x5742B3D7U, 0xFCDB2127U}) {
    EXPECT_EQ(random.next_u32(), expected);
  }
}

TEST(random, permutations_are_golden) {
  // Computed by a second implementation in another language.
  EXPECT_THAT(permutation(10, 42, 0), ElementsAre(6, 0, 5, 8, 4, 3, 2, 7, 1, 9));
  EXPECT_THAT(permutation(10, 42, 1), ElementsAre(0, 4, 5, 8, 6, 3, 2, 1, 7, 9));
  EXPECT_THAT(permutation(10, (std::uint64_t{1} << 40) + 7, (std::uint64_t{1} << 33) + 3),
              ElementsAre(2, 8, 7, 5, 6, 3, 4, 9, 0, 1));
  const auto large = permutation(1000, 1, 2);
  EXPECT_THAT(std::vector(large.begin(), large.begin() + 5), ElementsAre(316, 51, 961, 905, 420));
  EXPECT_THAT(std::vector(large.end() - 5, large.end()), ElementsAre(921, 653, 857, 425, 839));
}

TEST(random, a_permutation_has_every_number_once) {
  for (const std::uint64_t count : {0, 1, 2, 3, 1000}) {
    auto order = permutation(count, 7, 9);
    std::sort(order.begin(), order.end());
    std::vector<std::uint64_t> expected(count);
    std::iota(expected.begin(), expected.end(), std::uint64_t{0});
    EXPECT_EQ(order, expected);
  }
}

TEST(random, below_stays_below_and_reaches_everything) {
  Random random(3);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.below(6));
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(random.below(1), 0U);
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_LT(random.below(kLargest), kLargest);
}

TEST(random_death, below_nothing_is_a_bug) {
  Random random(3);
  EXPECT_DEATH(random.below(0), "bound >= 1");
}

TEST(random, uniform_values_keep_their_interval_and_their_mean) {
  Random random(11, 5);
  double sum = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const float value = random.uniform(-2.0F, 4.0F);
    ASSERT_GE(value, -2.0F);
    ASSERT_LT(value, 4.0F);
    sum += value;
  }
  EXPECT_NEAR(sum / kDraws, 1.0, 0.02);
}

TEST(random, the_upper_end_is_left_out_even_where_rounding_would_reach_it) {
  // Between 2^24 and its successor there is no other float: half of all draws would round up.
  constexpr float kLow = 0x1p24F;
  const float high = std::nextafter(kLow, std::numeric_limits<float>::infinity());
  Random random(1);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(random.uniform(kLow, high), kLow);
}

TEST(random, streams_of_one_seed_differ) {
  Random first(1, 0);
  Random second(1, 1);
  EXPECT_NE(first.next_u64(), second.next_u64());
}

TEST(random, the_systems_random_bytes_fill_all_of_any_size) {
  std::array<std::byte, 1000> first{};
  std::array<std::byte, 1000> second{};
  fill_with_secure_random(first);
  fill_with_secure_random(second);
  EXPECT_NE(first, second);
  EXPECT_LT(std::count(first.end() - 100, first.end(), std::byte{0}), 20);
  fill_with_secure_random({});
}

}  // namespace
}  // namespace gyre
