// Every rank computes its own place: all must see the same tree, it must reach everybody, and nobody may have many
// children.
#include "gyre/engine/internal/open/negotiation_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gyre/base/random.h"

namespace gyre::engine::internal {
namespace {

std::vector<std::vector<int>> random_hosts(Random& random, int size) {
  const std::uint64_t count = 1 + random.below(static_cast<std::uint64_t>(size));
  std::vector<std::vector<int>> hosts(count);
  for (int rank = 0; rank < size; ++rank) hosts[rank == 0 ? 0 : random.below(count)].push_back(rank);
  std::erase_if(hosts, [](const auto& ranks) { return ranks.empty(); });
  std::ranges::sort(hosts);
  return hosts;
}

TEST(NegotiationTreeTest, ranks_agree_about_who_speaks_for_whom) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  for (int round = 0; round < 60; ++round) {
    const int size = 1 + static_cast<int>(random.below(120));
    const int arity = 1 + static_cast<int>(random.below(8));
    const auto hosts = random_hosts(random, size);
    std::vector<NegotiationPlace> places;
    for (int rank = 0; rank < size; ++rank) places.push_back(negotiation_place(hosts, rank, arity));
    EXPECT_EQ(places[0].parent, -1);
    for (int rank = 0; rank < size; ++rank) {
      const NegotiationPlace& place = places[static_cast<std::size_t>(rank)];
      EXPECT_LE(place.children.size(), static_cast<std::size_t>(2 * arity));
      for (const auto& child : place.children) {
        EXPECT_GT(child.rank, rank);
        const NegotiationPlace& below = places[static_cast<std::size_t>(child.rank)];
        EXPECT_EQ(below.parent, rank);
        std::vector<int> expected{child.rank};
        for (const auto& grandchild : below.children) {
          expected.insert(expected.end(), grandchild.ranks.begin(), grandchild.ranks.end());
        }
        std::ranges::sort(expected);
        EXPECT_EQ(child.ranks, expected);
      }
    }
    std::vector<int> reached{0};
    for (const auto& child : places[0].children) reached.insert(reached.end(), child.ranks.begin(), child.ranks.end());
    std::ranges::sort(reached);
    std::vector<int> everybody(static_cast<std::size_t>(size));
    std::iota(everybody.begin(), everybody.end(), 0);
    EXPECT_EQ(reached, everybody);
  }
}

TEST(NegotiationTreeTest, few_ranks_speak_for_themselves) {
  const std::vector<std::vector<int>> hosts{{0, 2}, {1, 3}};
  EXPECT_EQ(negotiation_place(hosts, 0, 2).children.size(), 3U);
  EXPECT_EQ(negotiation_place(hosts, 3, 2).parent, 0);
}

TEST(NegotiationTreeTest, a_hosts_lowest_rank_speaks_for_it) {
  const std::vector<std::vector<int>> hosts{{0, 3, 6}, {1, 4, 7}, {2, 5, 8}};
  EXPECT_EQ(negotiation_place(hosts, 7, 4).parent, 1);
  EXPECT_EQ(negotiation_place(hosts, 1, 4).parent, 0);
  EXPECT_EQ(negotiation_place(hosts, 0, 4).children.size(), 4U);
}

TEST(NegotiationTreeTest, a_thousand_hosts_are_three_hops_away) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < 1024; ++rank) hosts.push_back({rank});
  int hops = 0;
  for (int rank = 1023; rank != 0; rank = negotiation_place(hosts, rank, 16).parent) ++hops;
  EXPECT_EQ(hops, 3);
}

}  // namespace
}  // namespace gyre::engine::internal
