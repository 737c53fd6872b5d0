// Small messages rely on it for any number of ranks; the sum must be the same expression on every rank.
#include "gyre/collectives/schedule/recursive_doubling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <string>

namespace gyre::collectives {
namespace {

using Schedules = std::vector<std::vector<DoublingStep>>;

Schedules schedules_of(int size) {
  Schedules schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(recursive_doubling_steps(rank, size));
  return schedules;
}

std::optional<DoublingStep> step_in_round(const std::vector<DoublingStep>& steps, int round) {
  for (const DoublingStep& step : steps) {
    if (step.round == round) return step;
  }
  return std::nullopt;
}

std::string cell(const std::optional<DoublingStep>& step) {
  if (!step) return "";
  const std::string direction = !step->receive() ? ">" : step->send ? "=" : "<";
  const char* const combines[] = {"", "r", "a", "b"};
  return direction + std::to_string(step->partner) + combines[static_cast<int>(step->combine)];
}

// Runs all ranks round by round over expressions, and returns what every rank ends with.
std::vector<std::string> simulate(const Schedules& schedules) {
  const int size = static_cast<int>(schedules.size());
  std::vector<std::string> values;
  for (int rank = 0; rank < size; ++rank) values.push_back(std::to_string(rank));
  for (int round = 0; round < recursive_doubling_rounds(size); ++round) {
    const std::vector<std::string> before = values;
    for (int rank = 0; rank < size; ++rank) {
      const auto mine = step_in_round(schedules[rank], round);
      if (!mine) continue;
      const auto theirs = step_in_round(schedules[mine->partner], round);
      if (!theirs || theirs->partner != rank || theirs->send != mine->receive() || theirs->receive() != mine->send) {
        ADD_FAILURE() << "rank " << rank << " and " << mine->partner << " do not match in round " << round;
        return values;
      }
      const std::string& arrived = before[mine->partner];
      switch (mine->combine) {
        case Combine::kNothing: break;
        case Combine::kReplace: values[rank] = arrived; break;
        case Combine::kOwnFirst: values[rank] = fmt::format("({} {})", values[rank], arrived); break;
        case Combine::kArrivedFirst: values[rank] = fmt::format("({} {})", arrived, values[rank]); break;
      }
    }
  }
  return values;
}

TEST(recursive_doubling, the_table_for_five_ranks_is_the_one_in_the_comment) {
  std::string table;
  for (const auto& steps : schedules_of(5)) {
    for (int round = 0; round < recursive_doubling_rounds(5); ++round) {
      table += fmt::format("{:6}", cell(step_in_round(steps, round)));
    }
    table += "\n";
  }
  EXPECT_EQ(table,
            "<1a   =2a   =3a   >1    \n"
            ">0                <0r   \n"
            "      =0b   =4a         \n"
            "      =4a   =0b         \n"
            "      =3b   =2b         \n");
}

TEST(recursive_doubling, four_and_five_ranks_bracket_the_sum_as_promised) {
  EXPECT_EQ(simulate(schedules_of(4))[3], "((0 1) (2 3))");
  EXPECT_EQ(simulate(schedules_of(5))[1], "(((0 1) 2) (3 4))");
}

TEST(recursive_doubling, all_ranks_compute_one_expression_with_every_rank_once_and_in_order) {
  for (int size = 1; size <= 17; ++size) {
    const std::vector<std::string> values = simulate(schedules_of(size));
    std::string ranks_in_order;
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(values[rank], values[0]) << size;
      ranks_in_order += fmt::format("{}{}", rank == 0 ? "" : " ", rank);
    }
    std::string without_brackets = values[0];
    std::erase_if(without_brackets, [](char letter) { return letter == '(' || letter == ')'; });
    EXPECT_EQ(without_brackets, ranks_in_order);
  }
}

TEST(recursive_doubling, the_number_of_rounds_is_logarithmic_and_rounds_ascend) {
  for (int size = 1; size <= 17; ++size) {
    const bool power_of_two = std::has_single_bit(static_cast<unsigned>(size));
    const int expected = std::bit_width(static_cast<unsigned>(size)) - 1 + (power_of_two ? 0 : 2);
    EXPECT_EQ(recursive_doubling_rounds(size), expected);
    for (const auto& steps : schedules_of(size)) {
      for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_LT(steps[i - 1].round, steps[i].round);
      for (const DoublingStep& step : steps) EXPECT_LT(step.round, expected);
    }
  }
}

}  // namespace
}  // namespace gyre::collectives
