// Results must not depend on how many ranks share the work: these tests fix the order and who gets what.
#include "gyre/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

using testing::ElementsAre;

/// All samples that count in an epoch, in global order: step by step, rank by rank.
std::vector<std::uint64_t> counted_samples(const SamplerOptions& options, std::uint64_t epoch) {
  std::vector<std::uint64_t> all;
  const EpochOrder order(options, epoch, 0);
  for (std::uint64_t step = 0; step < order.steps(); ++step) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      const RankBatch batch = order.batch(step, rank);
      EXPECT_EQ(batch.samples.size(), options.batch_per_rank);
      all.insert(all.end(), batch.samples.begin(), batch.samples.begin() + static_cast<std::ptrdiff_t>(batch.counted));
    }
  }
  return all;
}

TEST(Sampler, the_order_of_an_epoch_is_fixed_for_good) {
  EXPECT_THAT(epoch_permutation(10, 1, 0), ElementsAre(7, 2, 5, 4, 1, 6, 9, 3, 0, 8));
  EXPECT_THAT(epoch_permutation(10, 1, 1), ElementsAre(0, 3, 4, 9, 5, 1, 6, 7, 2, 8));
  EXPECT_THAT(epoch_permutation(10, 2, 0), ElementsAre(5, 3, 2, 4, 0, 8, 1, 7, 6, 9));
}

TEST(Sampler, every_sample_counts_once_per_epoch_for_any_number_of_ranks) {
  for (const std::uint64_t count : {1U, 7U, 64U, 1000U}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const std::uint64_t batch : {1U, 3U, 16U}) {
        auto samples = counted_samples({.count = count, .seed = 5, .ranks = ranks, .batch_per_rank = batch}, 2);
        EXPECT_EQ(samples, epoch_permutation(count, 5, 2)) << count << " samples, " << ranks << " ranks, " << batch;
      }
    }
  }
}

TEST(Sampler, a_step_holds_the_same_samples_for_any_split_of_the_global_batch) {
  const SamplerOptions one{.count = 100, .seed = 3, .ranks = 1, .batch_per_rank = 24};
  for (const int ranks : {2, 3, 4, 8}) {
    SamplerOptions many = one;
    many.ranks = ranks;
    many.batch_per_rank = 24U / static_cast<std::uint64_t>(ranks);
    EXPECT_EQ(counted_samples(many, 0), counted_samples(one, 0));
    const EpochOrder order(many, 0, 0);
    const RankBatch last_rank = order.batch(1, ranks - 1);
    EXPECT_EQ(last_rank.samples.back(), EpochOrder(one, 0, 0).batch(1, 0).samples.back());
    EXPECT_EQ(last_rank.first_position, 24U - many.batch_per_rank);
  }
}

TEST(Sampler, an_epoch_goes_on_at_any_position_with_other_ranks_and_batches) {
  // A run that resumed with more ranks counted steps of the new size, and left out the samples between.
  const std::vector<std::uint64_t> whole = epoch_permutation(101, 3, 2);
  for (const auto shuffling : {Shuffling::kFull, Shuffling::kNone}) {
    for (const std::uint64_t first : {0U, 1U, 24U, 50U, 100U, 101U}) {
      for (const int ranks : {1, 2, 5}) {
        const SamplerOptions options{
            .count = 101, .seed = 3, .shuffling = shuffling, .ranks = ranks, .batch_per_rank = 7};
        const EpochOrder order(options, 2, 0, first);
        std::vector<std::uint64_t> seen;
        for (std::uint64_t step = 0; step < order.steps(); ++step) {
          for (int rank = 0; rank < ranks; ++rank) {
            const RankBatch batch = order.batch(step, rank);
            for (std::uint64_t i = 0; i < batch.counted; ++i) {
              seen.push_back(batch.samples[i]);
              EXPECT_EQ(order.sample_at(order.position_of(step, rank, i)), batch.samples[i]);
            }
          }
        }
        ASSERT_EQ(seen.size(), 101 - first) << ranks << " ranks from " << first;
        for (std::uint64_t i = 0; i < seen.size(); ++i) {
          EXPECT_EQ(seen[i], shuffling == Shuffling::kFull ? whole[first + i] : first + i);
        }
        SamplerOptions dropping = options;
        dropping.remainder = Remainder::kDrop;
        EXPECT_EQ(EpochOrder(dropping, 2, 0, first).steps(), (101 - first) / positions_per_step(options));
      }
    }
  }
}

/// Of blocks of a few samples, in four streams.
SamplerOptions four_streams(std::uint64_t count, int ranks, std::uint64_t batch) {
  std::vector<std::uint64_t> ends;
  for (std::uint64_t end = 5; end < count; end += 5) ends.push_back(end);
  ends.push_back(count);
  return {.count = count,
          .seed = 3,
          .shuffling = Shuffling::kBlocks,
          .block_ends = std::make_shared<const std::vector<std::uint64_t>>(ends),
          .streams = 4,
          .open_blocks = 2,
          .ranks = ranks,
          .batch_per_rank = batch};
}

// A rank that reads from all streams reads the whole set: nodes would keep, or fetch, what belongs to others.
TEST(Sampler, each_rank_takes_its_own_streams_where_they_can_be_divided) {
  for (const std::uint64_t count : {5U, 64U, 203U}) {
    for (const int ranks : {1, 2, 4, 8}) {
      for (const std::uint64_t first : {0U, 1U, 4U}) {
        const SamplerOptions options = four_streams(count, ranks, 16U / static_cast<unsigned>(ranks));
        const EpochOrder order(options, 1, 0, first);
        for (std::uint64_t step = 0; step < order.steps(); ++step) {
          std::vector<std::uint64_t> counted;
          for (int rank = 0; rank < ranks; ++rank) {
            const RankBatch batch = order.batch(step, rank);
            for (std::uint64_t i = 0; i < options.batch_per_rank; ++i) {
              const std::uint64_t position = order.position_of(step, rank, i);
              EXPECT_EQ(order.sample_at(position), batch.samples[i]);
              if (i < batch.counted) counted.push_back(position);
              if (count < 16) continue;  // Too few for padding of each stream.
              // Ranks 0 and 1 of 8 share stream 0; rank 0 of 2 has the streams 0 and 1.
              const auto stream = static_cast<int>(position % 4);
              EXPECT_TRUE(ranks >= 4 ? rank / (ranks / 4) == stream : stream / (4 / ranks) == rank)
                  << "rank " << rank << " of " << ranks << ", step " << step << ", position " << position;
            }
          }
          std::ranges::sort(counted);
          const std::uint64_t begin = first + step * 16;
          ASSERT_EQ(counted.size(), std::min<std::uint64_t>(16, count - begin));
          for (std::uint64_t i = 0; i < counted.size(); ++i) EXPECT_EQ(counted[i], begin + i);
        }
      }
    }
  }
}

TEST(Sampler, what_a_rank_reads_next_is_of_its_own_streams) {
  const SamplerOptions options = four_streams(200, 4, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const EpochOrder order(options, 0, rank);
    std::set<std::uint64_t> own;  // Blocks of five samples, ten of each stream.
    for (std::uint64_t position = static_cast<std::uint64_t>(rank); position < 200; position += 4)
      own.insert(order.sample_at(position) / 5);
    EXPECT_EQ(own.size(), 10U);
    for (std::uint64_t position = 0; position < 200; ++position) {
      const auto upcoming = order.upcoming_blocks(position, 100);
      EXPECT_FALSE(upcoming.empty());
      for (const std::uint64_t sample : upcoming) EXPECT_TRUE(own.contains(sample / 5)) << rank << " " << sample;
    }
  }
}

TEST(Sampler, streams_that_cannot_be_divided_change_nothing) {
  for (const int ranks : {3, 6}) {
    const SamplerOptions options = four_streams(203, ranks, 4);
    const EpochOrder order(options, 1, 0);
    for (std::uint64_t step = 0; step < order.steps(); ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::uint64_t begin = (step * static_cast<unsigned>(ranks) + static_cast<unsigned>(rank)) * 4;
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(order.position_of(step, rank, i), (begin + i) % 203);
      }
    }
  }
}

TEST(Sampler, dropping_the_remainder_leaves_out_less_than_a_global_batch) {
  const SamplerOptions options{.count = 100, .seed = 3, .ranks = 3, .batch_per_rank = 8, .remainder = Remainder::kDrop};
  EXPECT_EQ(steps_per_epoch(options), 4U);
  auto samples = counted_samples(options, 0);
  EXPECT_EQ(samples.size(), 96U);
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(std::adjacent_find(samples.begin(), samples.end()), samples.end()) << "no sample twice";
}

TEST(Sampler, padding_is_marked_and_says_how_many_samples_count) {
  const SamplerOptions options{.count = 10, .seed = 3, .ranks = 4, .batch_per_rank = 4};
  const EpochOrder order(options, 0, 0);
  EXPECT_EQ(order.steps(), 1U);
  const std::vector<std::uint64_t> counted = {4, 4, 2, 0};
  for (int rank = 0; rank < 4; ++rank) {
    const RankBatch batch = order.batch(0, rank);
    EXPECT_EQ(batch.counted, counted[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(batch.counted_globally, 10U);
  }
}

TEST(Sampler, every_rank_runs_all_samples_in_its_own_order_when_asked_to) {
  const SamplerOptions options{
      .count = 50, .seed = 3, .ranks = 2, .batch_per_rank = 10, .sharing = Sharing::kEveryRankAll};
  EXPECT_EQ(steps_per_epoch(options), 5U);
  std::vector<std::vector<std::uint64_t>> seen(2);
  for (int rank = 0; rank < 2; ++rank) {
    const EpochOrder order(options, 0, rank);
    for (std::uint64_t step = 0; step < 5; ++step) {
      const RankBatch batch = order.batch(step, rank);
      EXPECT_EQ(batch.counted_globally, 20U);
      auto& mine = seen[static_cast<std::size_t>(rank)];
      mine.insert(mine.end(), batch.samples.begin(), batch.samples.end());
    }
  }
  EXPECT_NE(seen[0], seen[1]);
  std::vector<std::uint64_t> all(50);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  for (auto& samples : seen) {
    std::sort(samples.begin(), samples.end());
    EXPECT_EQ(samples, all);
  }
}

TEST(Sampler, too_few_samples_for_one_batch_is_an_error_when_the_remainder_is_dropped) {
  EXPECT_THROW(steps_per_epoch({.count = 5, .ranks = 2, .batch_per_rank = 3, .remainder = Remainder::kDrop}), Error);
  EXPECT_THROW(steps_per_epoch({.count = 0}), Error);
}

TEST(Sampler, shares_cover_everything_once_and_differ_by_one_at_most) {
  for (const std::uint64_t count : {0U, 1U, 5U, 297U}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      std::uint64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(count, rank, ranks);
        EXPECT_EQ(share.first, next);
        EXPECT_LE(share.last - share.first, count / static_cast<std::uint64_t>(ranks) + 1);
        next = share.last;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace gyre::data
