// Where each value lives is decided by every worker and server for itself: they must all decide the same, and no value
// may be lost or doubled.
#include "gyre/params/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::params {
namespace {

using testing::ElementsAre;

TEST(Shards, a_large_tensor_is_split_and_small_ones_share_a_block) {
  const std::vector<std::uint64_t> tensors = {3, 4, 25, 0, 2};
  const std::vector<Block> blocks = divide_into_blocks(tensors, {.servers = 2, .values_per_block = 10});
  EXPECT_THAT(blocks, ElementsAre(Block{0, {{0, 0, 3}, {1, 0, 4}}, 7}, Block{1, {{2, 0, 9}}, 9},
                                  Block{0, {{2, 9, 8}}, 8}, Block{1, {{2, 17, 8}, {4, 0, 2}}, 10}));
}

TEST(Shards, the_least_loaded_server_gets_the_next_block) {
  const std::vector<std::uint64_t> tensors = {8, 3, 3, 6};
  std::vector<int> servers;
  for (const Block& block : divide_into_blocks(tensors, {.servers = 2, .values_per_block = 8})) {
    servers.push_back(block.server);
  }
  EXPECT_THAT(servers, ElementsAre(0, 1, 1));
}

TEST(Shards, every_value_is_in_exactly_one_block) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<std::uint64_t> tensors(1 + random.below(20));
    for (std::uint64_t& values : tensors) values = random.below(60);
    tensors[0] += 1;
    const ShardOptions options{.servers = static_cast<int>(1 + random.below(5)),
                               .values_per_block = 1 + random.below(30)};
    std::vector<std::uint64_t> next(tensors.size());
    for (const Block& block : divide_into_blocks(tensors, options)) {
      EXPECT_LE(block.count, options.values_per_block) << "seed " << seed;
      EXPECT_TRUE(block.server >= 0 && block.server < options.servers) << "seed " << seed;
      std::uint64_t count = 0;
      for (const Range& range : block.ranges) {
        EXPECT_EQ(range.first, next[range.tensor]) << "seed " << seed;
        next[range.tensor] += range.count;
        count += range.count;
      }
      EXPECT_EQ(count, block.count) << "seed " << seed;
    }
    EXPECT_EQ(next, tensors) << "seed " << seed;
  }
}

TEST(Shards, what_does_not_fit_is_an_error) {
  EXPECT_THROW(divide_into_blocks(std::vector<std::uint64_t>{4}, {.servers = 0}), Error);
  EXPECT_THROW(divide_into_blocks(std::vector<std::uint64_t>{kMostBlocks + 1}, {.values_per_block = 1}), Error);
}

}  // namespace
}  // namespace gyre::params
