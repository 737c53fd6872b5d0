// All-to-all: every pair of ranks must meet exactly once, and in a step nobody may wait for someone who looks away.
#include "gyre/collectives/schedule/pairwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gyre::collectives {
namespace {

TEST(pairwise, the_table_for_four_ranks_is_the_one_in_the_comment) {
  std::string table;
  for (int rank = 0; rank < 4; ++rank) {
    for (const PairwiseStep& step : pairwise_steps(rank, 4)) {
      table += fmt::format("{}/{} ", step.send_to, step.receive_from);
    }
    table += "\n";
  }
  EXPECT_EQ(table, "1/3 2/2 3/1 \n2/0 3/3 0/2 \n3/1 0/0 1/3 \n0/2 1/1 2/0 \n");
}

TEST(pairwise, every_rank_sends_to_every_other_once_and_partners_match_in_each_step) {
  for (int size = 1; size <= 17; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const auto steps = pairwise_steps(rank, size);
      ASSERT_EQ(steps.size(), static_cast<std::size_t>(size - 1));
      std::set<int> targets;
      std::set<int> origins;
      for (std::size_t step = 0; step < steps.size(); ++step) {
        EXPECT_EQ(pairwise_steps(steps[step].send_to, size)[step].receive_from, rank);
        EXPECT_NE(steps[step].send_to, rank);
        targets.insert(steps[step].send_to);
        origins.insert(steps[step].receive_from);
      }
      EXPECT_EQ(targets.size(), steps.size());
      EXPECT_EQ(origins.size(), steps.size());
    }
  }
}

}  // namespace
}  // namespace gyre::collectives
