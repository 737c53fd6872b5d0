// Block shuffle must lose no sample, read few blocks at a time, mix them, and be the same for everybody.
#include "gyre/data/block_shuffle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/random.h"
#include "gyre/data/internal/block_ends.h"
#include "gyre/data/sampler.h"

namespace gyre::data {
namespace {

using testing::ElementsAre;
using Ends = std::vector<std::uint64_t>;

std::vector<std::uint64_t> order_of(const BlockShuffleOptions& options, const RandomKey& key) {
  const BlockShuffle shuffle(options, key);
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < options.count; ++i) order.push_back(shuffle.at(i));
  return order;
}

BlockShuffleOptions blocks(const Ends& ends, std::uint64_t open_blocks, std::uint64_t streams = 1) {
  return {.count = ends.back(),
          .block_ends = std::make_shared<const Ends>(ends),
          .streams = streams,
          .open_blocks = open_blocks};
}

Ends random_ends(Random& random) {
  Ends ends;
  const std::uint64_t most = 1 + random.below(90);  // Some blocks are larger than Shuffle's small orders.
  for (std::uint64_t i = 1 + random.below(40); i > 0; --i) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + 1 + random.below(random.below(3) == 0 ? 3 : most));
  }
  return ends;
}

std::size_t block_of(const Ends& ends, std::uint64_t sample) {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends, sample) - ends.begin());
}

/// The most blocks of which some samples, and not yet all, have been read.
std::size_t most_open(const Ends& ends, const std::vector<std::uint64_t>& order) {
  std::map<std::size_t, std::uint64_t> read;
  std::size_t most = 0;
  for (const std::uint64_t sample : order) {
    const std::size_t block = block_of(ends, sample);
    ++read[block];
    most = std::max(most, read.size());
    const std::uint64_t size = ends[block] - (block == 0 ? 0 : ends[block - 1]);
    if (read[block] == size) read.erase(block);
  }
  return most;
}

TEST(BlockShuffle, every_number_comes_once_and_few_blocks_are_open_at_a_time) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Ends ends = random_ends(random);
    const std::uint64_t open = 1 + random.below(20);
    const std::uint64_t streams = 1 + random.below(4);
    const auto order = order_of(blocks(ends, open, streams), {seed, 1});
    EXPECT_LE(most_open(ends, order), open * streams);
    auto sorted = order;
    std::ranges::sort(sorted);
    for (std::uint64_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
    auto single = blocks(ends, open, streams);
    single.block_ends = nullptr;
    sorted = order_of(single, {seed, 1});
    std::ranges::sort(sorted);
    for (std::uint64_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
  }
}

TEST(BlockShuffle, a_stream_reads_a_part_of_its_own) {
  Ends ends;
  for (std::uint64_t i = 1; i <= 60; ++i) ends.push_back(10 * i);
  const auto order = order_of(blocks(ends, 4, 3), {5, 6});
  std::map<std::size_t, std::set<std::uint64_t>> streams_of;
  for (std::uint64_t i = 0; i < order.size(); ++i) streams_of[block_of(ends, order[i])].insert(i % 3);
  const auto shared = std::ranges::count_if(streams_of, [](const auto& entry) { return entry.second.size() > 1; });
  EXPECT_LE(shared, 2) << "at the cuts alone";
}

TEST(BlockShuffle, each_round_takes_a_sample_from_every_open_block) {
  Ends ends;
  for (std::uint64_t i = 1; i <= 64; ++i) ends.push_back(50 * i);
  const auto order = order_of(blocks(ends, 8), {5, 6});
  bool in_other_order = false;
  std::vector<std::size_t> last;
  for (std::size_t round = 1; round < 40; ++round) {
    std::vector<std::size_t> drawn;
    for (std::size_t i = 8 * round; i < 8 * round + 8; ++i) drawn.push_back(block_of(ends, order[i]));
    in_other_order = in_other_order || (!last.empty() && drawn != last);
    last = drawn;
    std::ranges::sort(drawn);
    EXPECT_EQ(std::ranges::unique(drawn).begin() - drawn.begin(), 8) << "round " << round;
  }
  EXPECT_TRUE(in_other_order);
}

/// chi squared over `cells`, all of which `expected` values should meet.
double chi_squared(const std::map<std::vector<std::uint64_t>, double>& times, std::size_t cells, double expected) {
  double sum = static_cast<double>(cells - times.size()) * expected;
  for (const auto& [order, count] : times) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// With 119 degrees of freedom chi squared exceeds 185 once in 10,000 times; the streams here are always the same.
TEST(BlockShuffle, all_orders_of_five_blocks_and_of_five_samples_are_equally_likely) {
  constexpr std::uint64_t kStreams = 24'000;
  std::map<std::vector<std::uint64_t>, double> of_blocks;
  std::map<std::vector<std::uint64_t>, double> of_samples;
  std::map<std::vector<std::uint64_t>, double> of_all;
  for (std::uint64_t stream = 0; stream < kStreams; ++stream) {
    const auto order = order_of(blocks({1, 4, 6, 11, 12}, 1), {3, stream});
    std::vector<std::uint64_t> seen;
    for (const std::uint64_t sample : order) {
      const std::uint64_t block = block_of({1, 4, 6, 11, 12}, sample);
      if (seen.empty() || seen.back() != block) seen.push_back(block);
    }
    ++of_blocks[seen];
    auto within = order_of(blocks({5, 6}, 1), {4, stream});
    std::erase(within, 5);
    ++of_samples[within];
    std::vector<std::uint64_t> full;
    for (std::uint64_t i = 0; i < 5; ++i) full.push_back(Shuffle(5, 7, stream).at(i));
    ++of_all[full];
  }
  EXPECT_LT(chi_squared(of_blocks, 120, kStreams / 120.0), 185);
  EXPECT_LT(chi_squared(of_samples, 120, kStreams / 120.0), 185);
  EXPECT_LT(chi_squared(of_all, 120, kStreams / 120.0), 185);
}

// The finding: of shards of 100, 100, 100 and 5 samples the last one was never read.
TEST(BlockShuffle, a_short_last_block_is_read_as_others_are) {
  SamplerOptions options{.count = 305,
                         .seed = 3,
                         .shuffling = Shuffling::kBlocks,
                         .block_ends = std::make_shared<const Ends>(Ends{100, 200, 300, 305}),
                         .open_blocks = 16,
                         .ranks = 4,
                         .batch_per_rank = 10,
                         .remainder = Remainder::kDrop};
  for (const std::uint64_t open : {1U, 2U, 16U}) {
    options.open_blocks = open;
    std::vector<double> times(options.count);
    constexpr std::uint64_t kEpochs = 400;
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const EpochOrder order(options, epoch, 0);
      for (std::uint64_t position = 0; position < 280; ++position) ++times[order.sample_at(position)];
    }
    double of_last = 0;
    for (std::uint64_t sample = 300; sample < 305; ++sample) of_last += times[sample] / (5 * kEpochs);
    // One block at a time, it is the last one, which is dropped, in a quarter of the epochs.
    EXPECT_NEAR(of_last, open == 1 ? 0.75 : 280.0 / 305, 0.1) << open;
    EXPECT_GT(*std::ranges::min_element(times), kEpochs / 2.0) << open;
  }
}

TEST(BlockShuffle, ranks_that_run_through_all_samples_have_orders_of_their_own_within_blocks_too) {
  SamplerOptions options{.count = 80,
                         .shuffling = Shuffling::kBlocks,
                         .block_ends = std::make_shared<const Ends>(Ends{80}),
                         .open_blocks = 1,
                         .ranks = 2,
                         .sharing = Sharing::kEveryRankAll};
  std::vector<std::vector<std::uint64_t>> orders(4);
  for (std::uint64_t position = 0; position < 80; ++position) {
    orders[0].push_back(EpochOrder(options, 0, 0).sample_at(position));
    orders[1].push_back(EpochOrder(options, 0, 1).sample_at(position));
    orders[2].push_back(EpochOrder(options, 1, 0).sample_at(position));
    orders[3].push_back(EpochOrder(options, std::uint64_t{1} << 33, 0).sample_at(position));
  }
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(orders[a], orders[b]) << a << " " << b;
  }
}

TEST(BlockShuffle, what_comes_next_is_known) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Ends ends = random_ends(random);
    const auto options = blocks(ends, 1 + random.below(6), 1 + random.below(2));
    const BlockShuffle shuffle(options, {seed, 2});
    const std::uint64_t lanes = options.open_blocks * options.streams;
    for (std::uint64_t position = 0; position < options.count; position += 1 + random.below(20)) {
      const auto samples = shuffle.upcoming(position, 1000, 0, options.streams);
      std::set<std::size_t> expected;
      for (const std::uint64_t sample : samples) expected.insert(block_of(ends, sample));
      // Of every lane the block it is in and the next one: nothing else can be drawn in the next rounds.
      const std::uint64_t end = std::min(options.count, position / lanes * lanes + 2 * lanes);
      for (std::uint64_t i = position; i < end; ++i) EXPECT_TRUE(expected.contains(block_of(ends, shuffle.at(i))));
      EXPECT_LE(shuffle.upcoming(position, 3, 0, options.streams).size(), 3U);
    }
  }
}

TEST(BlockShuffle, the_order_is_fixed_for_good) {
  EXPECT_THAT(order_of(blocks({4, 5, 10}, 1), {1, 0}), ElementsAre(4, 3, 1, 0, 2, 8, 9, 7, 6, 5));
  EXPECT_THAT(order_of(blocks({4, 5, 10}, 3), {1, 0}), ElementsAre(9, 4, 7, 3, 8, 6, 5, 1, 2, 0));
  EXPECT_THAT(order_of(blocks({4, 5, 10}, 2, 2), {1, 7}), ElementsAre(6, 9, 0, 4, 3, 7, 1, 8, 2, 5));
}

// drop_last leaves out the end of the line: with one open block that is a whole short block where it comes last.
TEST(BlockShuffle, every_sample_is_seen_in_most_epochs_though_the_last_ones_are_dropped) {
  constexpr std::uint64_t kBatch = 40;
  constexpr int kEpochs = 2000;
  for (const std::uint64_t open : {1, 2, 16}) {
    const BlockShuffleOptions options = blocks({100, 200, 300, 305}, open);
    std::vector<int> seen(305);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const BlockShuffle shuffle(options, {0, static_cast<std::uint64_t>(epoch)});
      for (std::uint64_t i = 0; i < 305 / kBatch * kBatch; ++i) ++seen.at(static_cast<std::size_t>(shuffle.at(i)));
    }
    for (std::size_t sample = 0; sample < seen.size(); ++sample) {
      const double share = static_cast<double>(seen[sample]) / kEpochs;
      // The short block is the last one in a quarter of the epochs; of others a quarter of a quarter is dropped.
      if (open == 1) {
        EXPECT_NEAR(share, sample < 300 ? 1 - 25.0 / 400 : 0.75, 0.05) << "sample " << sample;
      } else {
        EXPECT_GE(share, 0.88) << open << " open blocks, sample " << sample;
      }
    }
  }
}

TEST(BlockShuffle, open_blocks_follow_from_their_size_and_the_memory) {
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(default_open_blocks(0, 1, 1024 * kMiB), 16U);
  EXPECT_EQ(default_open_blocks(16 * kMiB, 1, 1024 * kMiB), 16U);
  EXPECT_EQ(default_open_blocks(17 * kMiB, 1, 1024 * kMiB), 15U);
  EXPECT_EQ(default_open_blocks(17 * kMiB, 1, 100 * 1024 * kMiB), 15U) << "more memory does not change the order";
  EXPECT_EQ(default_open_blocks(16 * kMiB, 1, 128 * kMiB), 2U);
  EXPECT_EQ(default_open_blocks(1024 * kMiB, 1, 1024 * kMiB), 1U);
  EXPECT_EQ(default_open_blocks(17 * kMiB, 4, 1024 * kMiB), 3U) << "streams share the memory";
  EXPECT_EQ(default_open_blocks(0, 4, 1024 * kMiB), 16U);
  EXPECT_EQ(default_open_blocks(17 * kMiB, 65536, 1024 * kMiB), 1U);
}

TEST(BlockEnds, files_are_cut_into_equal_parts) {
  Ends ends;
  const auto of_size = [](std::uint64_t bytes) {
    return [bytes](std::uint64_t sample) { return bytes * (sample + 1); };
  };
  internal::append_blocks(ends, 10, of_size(10), 100);
  EXPECT_THAT(ends, ElementsAre(10));
  internal::append_blocks(ends, 11, of_size(10), 100);
  EXPECT_THAT(ends, ElementsAre(10, 16, 21));
  internal::append_blocks(ends, 0, of_size(10), 100);
  internal::append_blocks(ends, 3, of_size(250), 100);  // Samples longer than a block.
  EXPECT_THAT(ends, ElementsAre(10, 16, 21, 22, 23, 24));
  internal::append_blocks(ends, 100, of_size(0), 100);  // More samples than bytes, as a wrong count makes of a file.
  EXPECT_EQ(ends.back(), 124U);
  ends.resize(6);
  EXPECT_EQ(*internal::blocks_of(ends, 7).ends, ends);
  EXPECT_EQ(internal::blocks_of({1, 2, 3}, 7).ends, nullptr);
}

}  // namespace
}  // namespace gyre::data
