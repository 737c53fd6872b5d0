// Why: broadcast, allgather, reduce-scatter, all-to-all and barrier must be right for ragged and empty contributions,
// in every arrangement of ranks, whichever way they travel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/internal/shared/shared_layout.h"
#include "gyre/collectives/internal/test_support.h"

namespace gyre::collectives {
namespace {

using internal::index_of;
using testing::Arrangement;

Bytes random_bytes(std::size_t count, std::uint64_t stream) {
  return testing::random_elements(DataType::kUint8, count, testing::test_seed(), stream);
}

/// Ragged sizes: many small, some empty, now and then a long one.
std::vector<std::size_t> ragged_sizes(std::size_t count, Random& random) {
  std::vector<std::size_t> sizes(count);
  for (std::size_t& size : sizes) {
    switch (random.below(4)) {
      case 0: size = 0; break;
      case 1: size = random.below(2 * internal::kSlotBytes); break;
      default: size = random.below(5000);
    }
  }
  return sizes;
}

Bytes concatenated(const std::vector<Bytes>& pieces) {
  Bytes all;
  for (const Bytes& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

class MovesOfRanks : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  std::string where(const Arrangement& arrangement) const {
    return fmt::format("{} ranks, {}; seed {}", size(), arrangement.name, testing::test_seed());
  }
};

TEST_P(MovesOfRanks, broadcast_gives_everybody_the_roots_bytes) {
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      for (int root = 0; root < size(); ++root) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{3000}, internal::kSlotBytes,
                                        3 * internal::kPieceBytes + 11}) {
          const Bytes expected = random_bytes(bytes, index_of(root));
          Bytes buffer = lane.rank() == root ? expected : Bytes(bytes);
          broadcast(lane, buffer, root);
          EXPECT_TRUE(buffer == expected) << bytes << " bytes from " << root << "; " << where(arrangement);
        }
      }
    });
  }
}

TEST_P(MovesOfRanks, allgather_lays_ragged_contributions_end_to_end) {
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      Random random(testing::test_seed(), 1);
      for (std::uint64_t round = 0; round < 6; ++round) {
        const std::vector<std::size_t> sizes =
            round == 0 ? std::vector<std::size_t>(index_of(size())) : ragged_sizes(index_of(size()), random);
        std::vector<Bytes> pieces;
        for (std::size_t r = 0; r < sizes.size(); ++r) pieces.push_back(random_bytes(sizes[r], round * 100 + r));
        const Bytes expected = concatenated(pieces);
        Bytes output(expected.size());
        allgather(lane, pieces[index_of(lane.rank())], sizes, output);
        EXPECT_TRUE(output == expected) << "round " << round << "; " << where(arrangement);
      }
    });
  }
}

TEST_P(MovesOfRanks, allgather_may_be_in_place) {
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      Random random(testing::test_seed(), 4);
      for (std::uint64_t round = 0; round < 3; ++round) {
        const std::vector<std::size_t> sizes = ragged_sizes(index_of(size()), random);
        std::vector<Bytes> pieces;
        for (std::size_t r = 0; r < sizes.size(); ++r) pieces.push_back(random_bytes(sizes[r], round * 100 + r));
        const Bytes expected = concatenated(pieces);
        Bytes output(expected.size());
        const auto own_begin = std::accumulate(sizes.begin(), sizes.begin() + lane.rank(), std::size_t{0});
        const std::span<std::byte> own = std::span(output).subspan(own_begin, sizes[index_of(lane.rank())]);
        std::ranges::copy(pieces[index_of(lane.rank())], own.begin());
        allgather(lane, own, sizes, output);
        EXPECT_TRUE(output == expected) << "round " << round << "; " << where(arrangement);
      }
    });
  }
}

TEST_P(MovesOfRanks, reduce_scatter_gives_each_rank_its_ragged_piece) {
  const Reduction reductions[] = {{DataType::kFloat32, ReduceOperation::kAverage},
                                  {DataType::kInt16, ReduceOperation::kSum},
                                  {DataType::kInt8, ReduceOperation::kAverage},
                                  {DataType::kBfloat16, ReduceOperation::kMax, 2.0, 0.5}};
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      Random random(testing::test_seed(), 2);
      for (const Reduction& reduction : reductions) {
        const std::size_t element_bytes = size_of(reduction.type);
        std::vector<std::size_t> sizes = ragged_sizes(index_of(size()), random);
        // Several rounds of pieces for many ranks too, but less to compare for each.
        for (std::size_t& bytes : sizes) bytes = std::min<std::size_t>(bytes, 90'000) / element_bytes * element_bytes;
        const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
        std::vector<Bytes> inputs;
        for (int r = 0; r < size(); ++r) {
          inputs.push_back(
              testing::random_elements(reduction.type, total / element_bytes, testing::test_seed(), index_of(r)));
        }
        const Bytes own_input = inputs[index_of(lane.rank())];
        Bytes output(sizes[index_of(lane.rank())]);
        reduce_scatter(lane, own_input, sizes, output, reduction);
        EXPECT_TRUE(own_input == inputs[index_of(lane.rank())]) << "the input was changed; " << where(arrangement);

        const auto begin =
            static_cast<std::ptrdiff_t>(std::accumulate(sizes.begin(), sizes.begin() + lane.rank(), std::size_t{0}));
        for (Bytes& input : inputs) {
          input = Bytes(input.begin() + begin, input.begin() + begin + static_cast<std::ptrdiff_t>(output.size()));
        }
        EXPECT_EQ(testing::difference_from_reference(inputs, output, reduction), "")
            << name(reduction.type) << "; " << where(arrangement);
      }
    });
  }
}

TEST_P(MovesOfRanks, all_to_all_delivers_every_split) {
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      Random random(testing::test_seed(), 3);
      for (std::uint64_t round = 0; round < 5; ++round) {
        // piece(s, r): what s sends to r. All ranks draw the same matrix of sizes.
        std::vector<std::vector<std::size_t>> sizes;
        for (int s = 0; s < size(); ++s) {
          sizes.push_back(round == 0 ? std::vector<std::size_t>(index_of(size()))
                                     : ragged_sizes(index_of(size()), random));
        }
        const auto piece = [&](std::size_t from, std::size_t to) {
          return random_bytes(sizes[from][to], round * 10'000 + from * 100 + to);
        };
        const std::size_t own = index_of(lane.rank());
        std::vector<std::size_t> receive_bytes;
        std::vector<Bytes> sent;
        std::vector<Bytes> expected;
        for (std::size_t r = 0; r < index_of(size()); ++r) {
          receive_bytes.push_back(sizes[r][own]);
          sent.push_back(piece(own, r));
          expected.push_back(piece(r, own));
        }
        Bytes output(concatenated(expected).size());
        all_to_all(lane, concatenated(sent), sizes[own], output, receive_bytes);
        EXPECT_TRUE(output == concatenated(expected)) << "round " << round << "; " << where(arrangement);
      }
    });
  }
}

TEST_P(MovesOfRanks, numbers_for_each_rank_arrive_there) {
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      const auto number = [](std::int64_t from, std::int64_t to) { return from * 1000 - to; };
      for (std::int64_t round = 0; round < 3; ++round) {
        std::vector<std::int64_t> to_each;
        std::vector<std::int64_t> expected;
        for (int r = 0; r < size(); ++r) {
          to_each.push_back(number(lane.rank() + round, r));
          expected.push_back(number(r + round, lane.rank()));
        }
        EXPECT_EQ(exchange_numbers(lane, to_each), expected) << where(arrangement);
      }
    });
  }
}

TEST_P(MovesOfRanks, barrier_lets_nobody_through_before_the_last) {
  for (const Arrangement& arrangement : testing::arrangements(size())) {
    std::atomic<int> entered{0};
    testing::run_ranks(size(), arrangement, [&](group::Lane& lane) {
      for (int round = 1; round <= 50; ++round) {
        entered.fetch_add(1);
        barrier(lane);
        EXPECT_GE(entered.load(), round * size()) << where(arrangement);
        barrier(lane);
        EXPECT_EQ(entered.load(), round * size()) << where(arrangement);
        barrier(lane);
      }
    });
  }
}

TEST_P(MovesOfRanks, long_ones_are_right_in_whichever_way_slots_are_written) {
  // Enough of them for trials of both ways and for what follows from them; lengths on both sides of the limits.
  constexpr std::size_t kRounds = 70;
  const std::size_t bytes = 3 * internal::kSlotBytes / index_of(size()) + 8;
  testing::run_ranks(size(), testing::one_host(size()), [&](group::Lane& lane) {
    const Bytes own = random_bytes(bytes, index_of(lane.rank()));
    std::vector<Bytes> pieces;
    for (int r = 0; r < size(); ++r) pieces.push_back(random_bytes(bytes, index_of(r)));
    const Bytes all = concatenated(pieces);
    const std::vector<std::size_t> sizes(index_of(size()), bytes);
    for (std::size_t round = 0; round < kRounds; ++round) {
      Bytes output(all.size());
      allgather(lane, own, sizes, output);
      EXPECT_TRUE(output == all) << "allgather " << round << "; " << where({});
      // Every rank sends everything it has gathered: piece r to rank r, which gets it from all.
      Bytes received(all.size());
      all_to_all(lane, all, sizes, received, sizes);
      for (std::size_t r = 0; r < index_of(size()); ++r) {
        EXPECT_TRUE(std::equal(own.begin(), own.end(), received.begin() + static_cast<std::ptrdiff_t>(r * bytes)))
            << "all-to-all " << round << " from " << r << "; " << where({});
      }
      const int root = static_cast<int>(round) % size();
      Bytes buffer = lane.rank() == root ? all : Bytes(all.size());
      broadcast(lane, buffer, root);
      EXPECT_TRUE(buffer == all) << "broadcast " << round << "; " << where({});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, MovesOfRanks, ::testing::Range(1, 9));

TEST(Moves, of_different_kinds_follow_each_other_through_the_same_mailboxes) {
  for (const Arrangement& arrangement : testing::arrangements(4)) {
    testing::run_ranks(4, arrangement, [&](group::Lane& lane) {
      for (std::uint64_t round = 0; round < 30; ++round) {
        const int root = static_cast<int>(round % 4);
        std::vector<std::int32_t> values(70'000 + round, lane.rank() == root ? 5 : -1);
        broadcast(lane, std::as_writable_bytes(std::span(values)), root);
        allreduce(lane, std::as_writable_bytes(std::span(values)), {DataType::kInt32, ReduceOperation::kSum});
        std::int32_t small = values.front();
        allreduce(lane, std::as_writable_bytes(std::span(&small, 1)), {DataType::kInt32, ReduceOperation::kSum});
        EXPECT_EQ(small, 80);
        EXPECT_EQ(values.back(), 20);
        const std::vector<std::size_t> sizes(4, 4);
        std::vector<std::int32_t> gathered(4);
        const std::int32_t own = lane.rank();
        allgather(lane, std::as_bytes(std::span(&own, 1)), sizes, std::as_writable_bytes(std::span(gathered)));
        EXPECT_EQ(gathered, (std::vector<std::int32_t>{0, 1, 2, 3})) << "round " << round;
      }
    });
  }
}

}  // namespace
}  // namespace gyre::collectives
