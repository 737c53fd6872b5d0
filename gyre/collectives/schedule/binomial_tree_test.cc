// Broadcast carries the initial state of a model: a rank that is missed would train another model.
#include "gyre/collectives/schedule/binomial_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <string>

namespace gyre::collectives {
namespace {

using StepsOf = std::vector<TreeStep> (*)(int, int, int);
using Schedules = std::vector<std::vector<TreeStep>>;

Schedules schedules_of(StepsOf steps_of, int size, int root) {
  Schedules schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(steps_of(rank, size, root));
  return schedules;
}

int rounds_of(int size) { return std::countr_zero(std::bit_ceil(static_cast<unsigned>(size))); }

std::optional<TreeStep> step_in_round(const std::vector<TreeStep>& steps, int round) {
  std::optional<TreeStep> found;
  for (const TreeStep& step : steps) {
    if (step.round != round) continue;
    EXPECT_FALSE(found) << "two steps in round " << round;
    found = step;
  }
  return found;
}

// Calls deliver(sender, receiver) for every message, round by round; partners must agree.
template <typename Deliver>
void simulate(const Schedules& schedules, Deliver deliver) {
  const int size = static_cast<int>(schedules.size());
  std::size_t seen = 0;
  std::size_t planned = 0;
  for (const auto& steps : schedules) planned += steps.size();
  for (int round = 0; round < rounds_of(size); ++round) {
    for (int rank = 0; rank < size; ++rank) {
      const auto mine = step_in_round(schedules[rank], round);
      if (!mine) continue;
      ++seen;
      const auto theirs = step_in_round(schedules[mine->partner], round);
      ASSERT_TRUE(theirs) << "rank " << mine->partner << " does not expect rank " << rank;
      ASSERT_EQ(theirs->partner, rank);
      ASSERT_NE(theirs->send, mine->send);
      if (!mine->send) deliver(mine->partner, rank);
    }
  }
  EXPECT_EQ(seen, planned);
}

TEST(binomial_tree, the_table_for_six_ranks_is_the_one_in_the_comment) {
  std::string table;
  for (const auto& steps : schedules_of(binomial_broadcast_steps, 6, 0)) {
    for (int round = 0; round < 3; ++round) {
      const auto step = step_in_round(steps, round);
      table += fmt::format("{:5}", step ? fmt::format("{}{}", step->send ? ">" : "<", step->partner) : "");
    }
    table += "\n";
  }
  EXPECT_EQ(table,
            ">4   >2   >1   \n"
            "          <0   \n"
            "     <0   >3   \n"
            "          <2   \n"
            "<0        >5   \n"
            "          <4   \n");
}

TEST(binomial_tree, broadcast_reaches_every_rank_once_from_any_root) {
  for (int size = 1; size <= 17; ++size) {
    for (int root = 0; root < size; ++root) {
      std::vector<int> received(size, 0);
      received[root] = 1;
      simulate(schedules_of(binomial_broadcast_steps, size, root), [&](int sender, int receiver) {
        EXPECT_EQ(received[sender], 1) << "rank " << sender << " sends what it does not have";
        ++received[receiver];
      });
      EXPECT_EQ(received, std::vector<int>(size, 1)) << size << " ranks, root " << root;
    }
  }
}

TEST(binomial_tree, steps_of_a_rank_stand_in_the_order_of_their_rounds) {
  for (int size = 1; size <= 17; ++size) {
    for (const auto& steps : schedules_of(binomial_broadcast_steps, size, size / 2)) {
      for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_LT(steps[i - 1].round, steps[i].round);
    }
  }
}

}  // namespace
}  // namespace gyre::collectives
