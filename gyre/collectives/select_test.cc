// Why: all ranks must choose alike, and the choice is what makes small collectives quick and large ones fast; this
// table is the place where a change of it is seen.
#include "gyre/collectives/select.h"

#include <gtest/gtest.h>

#include <set>

namespace gyre::collectives {
namespace {

constexpr std::size_t kKilobyte = 1024;

struct Row {
  std::size_t size_bytes;
  bool in_arena;
  int size;
  int host_count;
  Algorithm expected;
};

TEST(Select, follows_its_table) {
  const Row rows[] = {
      {4, false, 1, 1, Algorithm::kAlone},
      {64 * kKilobyte, true, 1, 1, Algorithm::kAlone},
      {4, false, 2, 1, Algorithm::kMailbox},
      {4, true, 8, 1, Algorithm::kMailbox},
      {64 * kKilobyte, false, 4, 1, Algorithm::kMailbox},
      {64 * kKilobyte + 1, false, 4, 1, Algorithm::kSharedPipeline},
      {256 * kKilobyte * kKilobyte, false, 4, 1, Algorithm::kSharedPipeline},
      {4 * kKilobyte, true, 4, 1, Algorithm::kMailbox},
      {4 * kKilobyte + 64, true, 4, 1, Algorithm::kSharedArena},
      {256 * kKilobyte * kKilobyte, true, 2, 1, Algorithm::kSharedArena},
      {4, false, 4, 2, Algorithm::kRecursiveDoubling},
      {128 * kKilobyte, true, 4, 4, Algorithm::kRecursiveDoubling},
      {128 * kKilobyte + 1, false, 4, 2, Algorithm::kRing},
      {256 * kKilobyte * kKilobyte, true, 7, 3, Algorithm::kRing},
  };
  for (const Row& row : rows) {
    const Choice choice = choose_allreduce(row.size_bytes, row.in_arena, row.size, row.host_count);
    EXPECT_EQ(choice.algorithm, row.expected)
        << row.size_bytes << " bytes, arena " << row.in_arena << ", " << row.size << " ranks, " << row.host_count
        << " hosts: " << algorithm_name(choice.algorithm) << " because " << choice.reason;
    EXPECT_EQ(allreduce_algorithm(row.size_bytes, row.in_arena, row.size, row.host_count), choice.algorithm);
    EXPECT_FALSE(choice.reason.empty());
  }
}

TEST(Select, names_every_algorithm_differently) {
  std::set<std::string_view> names;
  for (const Algorithm algorithm : {Algorithm::kAlone, Algorithm::kMailbox, Algorithm::kSharedPipeline,
                                    Algorithm::kSharedArena, Algorithm::kRecursiveDoubling, Algorithm::kRing}) {
    EXPECT_TRUE(names.insert(algorithm_name(algorithm)).second) << algorithm_name(algorithm);
  }
}

}  // namespace
}  // namespace gyre::collectives
