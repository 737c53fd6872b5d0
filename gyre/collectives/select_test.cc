// Why: all ranks must choose alike, and the choice is what makes small collectives quick and large ones fast; this
// table is the place where a change of it is seen.
#include "gyre/collectives/select.h"

#include <gtest/gtest.h>

#include <set>

#include "gyre/collectives/internal/shared/shared_layout.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/link_cost.h"

namespace gyre::collectives {
namespace {

constexpr std::size_t kKilobyte = 1024;

struct Row {
  std::size_t size_bytes;
  bool in_arena;
  Placement placement;
  Algorithm expected;
};

TEST(Select, follows_its_table) {
  constexpr Placement kOneRank{1, 1, 1};
  constexpr Placement kOneHost{4, 1, 4};
  constexpr Placement kManyOnOneHost{65, 1, 65};
  constexpr Placement kApart{4, 4, 1};
  constexpr Placement kTwoByTwo{4, 2, 2};
  constexpr Placement kUnequal{4, 2, 1};
  constexpr Placement kManyApart{1024, 1024, 1};
  constexpr Placement kManyHosts{8192, 1024, 8};
  const Row rows[] = {
      {4, false, kOneRank, Algorithm::kAlone},
      {64 * kKilobyte, true, kOneRank, Algorithm::kAlone},
      {4, false, kOneHost, Algorithm::kMailbox},
      {4, true, kOneHost, Algorithm::kMailbox},
      {64 * kKilobyte, false, kOneHost, Algorithm::kMailbox},
      {64 * kKilobyte + 1, false, kOneHost, Algorithm::kSharedPipeline},
      {256 * kKilobyte * kKilobyte, false, kOneHost, Algorithm::kSharedPipeline},
      {4 * kKilobyte, true, kOneHost, Algorithm::kMailbox},
      {4 * kKilobyte + 64, true, kOneHost, Algorithm::kSharedArena},
      {256 * kKilobyte * kKilobyte, true, kOneHost, Algorithm::kSharedArena},
      {4, false, {64, 1, 64}, Algorithm::kMailbox},
      {4, false, kManyOnOneHost, Algorithm::kSharedPipeline},
      {4, true, kManyOnOneHost, Algorithm::kSharedArena},
      {4, false, kApart, Algorithm::kRecursiveDoubling},
      {128 * kKilobyte, true, kApart, Algorithm::kRecursiveDoubling},
      {160 * kKilobyte, false, kApart, Algorithm::kRing},
      {256 * kKilobyte * kKilobyte, true, kApart, Algorithm::kRing},
      {4, false, kTwoByTwo, Algorithm::kHostsDoubling},
      {96 * kKilobyte, true, kUnequal, Algorithm::kHostsDoubling},
      {160 * kKilobyte, false, kTwoByTwo, Algorithm::kHostsRing},
      {256 * kKilobyte * kKilobyte, true, kUnequal, Algorithm::kHostsRing},
      {32 * kKilobyte, false, kManyApart, Algorithm::kRecursiveDoubling},
      {128 * kKilobyte, false, kManyApart, Algorithm::kHalving},
      {64 * kKilobyte * kKilobyte, true, kManyApart, Algorithm::kHalving},
      {512 * kKilobyte * kKilobyte, true, kManyApart, Algorithm::kRing},
      {32 * kKilobyte, false, kManyHosts, Algorithm::kHostsDoubling},
      {128 * kKilobyte, false, kManyHosts, Algorithm::kHostsHalving},
      {512 * kKilobyte * kKilobyte, true, kManyHosts, Algorithm::kHostsRing},
  };
  for (const Row& row : rows) {
    const Choice choice = choose_allreduce(row.size_bytes, row.in_arena, row.placement);
    EXPECT_EQ(choice.algorithm, row.expected)
        << row.size_bytes << " bytes, arena " << row.in_arena << ", " << row.placement.size << " ranks, "
        << row.placement.hosts << " hosts: " << algorithm_name(choice.algorithm) << " because " << choice.reason;
    EXPECT_EQ(allreduce_algorithm(row.size_bytes, row.in_arena, row.placement), choice.algorithm);
    EXPECT_FALSE(choice.reason.empty());
  }
}

TEST(Select, says_between_which_sizes_and_why) {
  const auto reason = [](const Placement& placement, std::size_t kilobytes) {
    return choose_allreduce(kilobytes * kKilobyte, true, placement).reason;
  };
  EXPECT_EQ(reason({8, 2, 4}, 1024),
            "1 MB over 2 hosts of several ranks, more than 117.2 KB: 2 messages in a row, 1 MB over each link, in 4 "
            "parts at once");
  EXPECT_EQ(reason({5, 2, 1}, 1),
            "1 KB over 2 hosts of several ranks, at most 117.2 KB: 1 message in a row, 1 KB over each link, by one "
            "rank of each host");
  EXPECT_EQ(reason({1024, 1024, 1}, 1024),
            "1 MB over links, more than 51.7 KB and at most 144.7 MB: 20 messages in a row, 2 MB over each link");
}

// Hosts sum small buffers in mailboxes.
TEST(Select, doubles_nothing_that_is_too_large_for_a_mailbox) {
  for (int hosts = 2; hosts <= 5000; ++hosts) {
    EXPECT_LE(link_thresholds(hosts).doubling_bytes, internal::kSlotBytes) << hosts;
  }
}

TEST(Select, sees_where_ranks_share_memory) {
  // Rank and host are numbered apart: hosts a b a c a.
  const testing::Arrangement mixed{"mixed", {"a", "b", "a", "c", "a"}};
  testing::run_ranks(5, mixed, [](group::Lane& lane) {
    const Placement placement = placement_of(lane);
    EXPECT_EQ(placement.size, 5);
    EXPECT_EQ(placement.hosts, 3);
    EXPECT_EQ(placement.fewest_on_a_host, 1);
    EXPECT_FALSE(placement.all_apart());
  });
  const testing::Arrangement without_memory{"one host, no shared memory", testing::one_host(3).host_ids, false};
  testing::run_ranks(3, without_memory, [](group::Lane& lane) { EXPECT_TRUE(placement_of(lane).all_apart()); });
}

TEST(Select, says_in_which_pieces_a_buffer_moves) {
  constexpr std::size_t kMegabyte = std::size_t{1} << 20;
  EXPECT_EQ(piece_bytes(Algorithm::kMailbox, 4096, {4, 1, 4}), 4096);
  EXPECT_EQ(piece_bytes(Algorithm::kSharedArena, kMegabyte, {4, 1, 4}), kMegabyte / 4);
  EXPECT_EQ(piece_bytes(Algorithm::kSharedPipeline, kMegabyte, {4, 1, 4}), 256 * 1024);
  EXPECT_EQ(piece_bytes(Algorithm::kSharedPipeline, 4096, {4, 1, 4}), 4096);
  // Frames: of a chunk of a megabyte, and of one of four.
  const std::size_t of_ring = piece_bytes(Algorithm::kRing, 4 * kMegabyte, {4, 4, 1});
  EXPECT_LE(of_ring, kMegabyte);
  EXPECT_EQ(piece_bytes(Algorithm::kHostsRing, 4 * kMegabyte, {4, 2, 2}), of_ring);
  EXPECT_GE(piece_bytes(Algorithm::kHostsRing, 4 * kMegabyte, {2, 1, 1}), of_ring);
}

TEST(Select, names_every_algorithm_differently) {
  std::set<std::string_view> names;
  for (const Algorithm algorithm :
       {Algorithm::kAlone, Algorithm::kMailbox, Algorithm::kSharedPipeline, Algorithm::kSharedArena,
        Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kHostsDoubling, Algorithm::kHostsRing,
        Algorithm::kHalving, Algorithm::kHostsHalving}) {
    EXPECT_TRUE(names.insert(algorithm_name(algorithm)).second) << algorithm_name(algorithm);
  }
}

}  // namespace
}  // namespace gyre::collectives
