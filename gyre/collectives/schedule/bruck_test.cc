// Bruck's all-to-all: a block that takes one hop too many ends on the wrong rank, whatever the number of ranks.
#include "gyre/collectives/schedule/bruck.h"

#include <gtest/gtest.h>

#include <bit>
#include <utility>

namespace gyre::collectives {
namespace {

TEST(bruck, the_rounds_for_five_ranks_are_those_in_the_comment) {
  EXPECT_EQ(bruck_rounds(5), (std::vector<BruckRound>{{1, {1, 3}}, {2, {2, 3}}, {4, {4}}}));
}

TEST(bruck, every_block_ends_on_the_rank_that_it_is_meant_for) {
  for (int size = 1; size <= 33; ++size) {
    const auto count = static_cast<std::size_t>(size);
    const auto rounds = bruck_rounds(size);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(std::bit_width(count - 1)));
    // By rank and number of the block: where it comes from and where it is to go.
    std::vector<std::vector<std::pair<int, int>>> blocks(count, std::vector<std::pair<int, int>>(count));
    for (int rank = 0; rank < size; ++rank) {
      for (int k = 0; k < size; ++k) {
        blocks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(k)] = {rank, (rank + k) % size};
      }
    }
    for (const BruckRound& round : rounds) {
      const auto before = blocks;
      for (int rank = 0; rank < size; ++rank) {
        const auto to = static_cast<std::size_t>((rank + round.distance) % size);
        for (const int block : round.blocks) {
          const auto index = static_cast<std::size_t>(block);
          blocks[to][index] = before[static_cast<std::size_t>(rank)][index];
        }
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      for (int k = 0; k < size; ++k) {
        EXPECT_EQ(blocks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(k)],
                  std::make_pair((rank - k + size) % size, rank));
      }
    }
  }
}

}  // namespace
}  // namespace gyre::collectives
