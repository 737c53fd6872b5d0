// Why: allreduce walks this schedule; a wrong chunk is a wrong gradient, and a step without its counterpart waits for
// ever.
#include "gyre/collectives/schedule/halving_doubling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace gyre::collectives {
namespace {

std::string table(int size) {
  const auto chunks = [](char sign, ChunkRange range) {
    std::string text = range.count() > 0 ? fmt::format(" {}", sign) : "";
    for (int chunk = range.begin; chunk < range.end; ++chunk) text += fmt::format("{}", chunk);
    return text;
  };
  std::string lines;
  for (int rank = 0; rank < size; ++rank) {
    lines += fmt::format("rank {}:", rank);
    for (const HalvingStep& step : halving_doubling_steps(rank, size)) {
      lines += fmt::format(" [{}: {}{}{}{}]", step.round, step.partner, chunks('>', step.send),
                           chunks('<', step.receive), step.reduce && step.receive.count() > 0 ? "+" : "");
    }
    lines += "\n";
  }
  return lines;
}

TEST(HalvingDoublingSchedule, is_the_table_of_its_comment) {
  EXPECT_EQ(table(4),
            "rank 0: [0: 2 >23 <01+] [1: 1 >1 <0+] [2: 1 >0 <1] [3: 2 >01 <23]\n"
            "rank 1: [0: 3 >23 <01+] [1: 0 >0 <1+] [2: 0 >1 <0] [3: 3 >01 <23]\n"
            "rank 2: [0: 0 >01 <23+] [1: 3 >3 <2+] [2: 3 >2 <3] [3: 0 >23 <01]\n"
            "rank 3: [0: 1 >01 <23+] [1: 2 >2 <3+] [2: 2 >3 <2] [3: 1 >23 <01]\n");
  EXPECT_EQ(table(3),
            "rank 0: [0: 1 <01+] [1: 2 >1 <0+] [2: 2 >0 <1] [3: 1 >01]\n"
            "rank 1: [0: 0 >01] [3: 0 <01]\n"
            "rank 2: [1: 0 >0 <1+] [2: 0 >1 <0]\n");
}

/// Which ranks' contributions a rank's chunk holds.
using Contents = std::vector<std::multiset<int>>;

/// Runs the schedule of all ranks round by round on sets of contributors.
std::vector<Contents> play(int size) {
  const int chunks = halving_chunks(size);
  std::vector<Contents> held(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) held[rank].assign(static_cast<std::size_t>(chunks), {rank});
  for (int round = 0; round < halving_doubling_rounds(size); ++round) {
    const std::vector<Contents> before = held;
    for (int rank = 0; rank < size; ++rank) {
      for (const HalvingStep& step : halving_doubling_steps(rank, size)) {
        if (step.round != round) continue;
        bool has_counterpart = false;
        for (const HalvingStep& theirs : halving_doubling_steps(step.partner, size)) {
          has_counterpart = has_counterpart || (theirs.round == round && theirs.partner == rank &&
                                                theirs.send == step.receive && theirs.receive == step.send);
        }
        EXPECT_TRUE(has_counterpart) << size << " ranks, rank " << rank << ", round " << round;
        for (int chunk = step.receive.begin; chunk < step.receive.end; ++chunk) {
          const auto& arrived = before[step.partner][chunk];
          if (!step.reduce) held[rank][chunk].clear();
          held[rank][chunk].insert(arrived.begin(), arrived.end());
        }
      }
    }
  }
  return held;
}

TEST(HalvingDoublingSchedule, brings_every_contribution_once_to_every_chunk_of_every_rank) {
  for (int size = 1; size <= 70; ++size) {
    std::multiset<int> everybody;
    for (int rank = 0; rank < size; ++rank) everybody.insert(rank);
    const auto held = play(size);
    for (int rank = 0; rank < size; ++rank) {
      for (const auto& contributors : held[rank]) ASSERT_EQ(contributors, everybody) << size << " ranks, rank " << rank;
    }
  }
}

TEST(HalvingDoublingSchedule, sums_a_chunk_up_on_one_rank_alone) {
  for (int size = 2; size <= 70; ++size) {
    std::map<int, int> owners;
    for (int rank = 0; rank < size; ++rank) {
      for (const HalvingStep& step : halving_doubling_steps(rank, size)) {
        if (step.reduce && step.receive.count() == 1) ++owners[step.receive.begin];
      }
    }
    ASSERT_EQ(static_cast<int>(owners.size()), halving_chunks(size));
    for (const auto& [chunk, count] : owners) ASSERT_EQ(count, 1) << size << " ranks, chunk " << chunk;
  }
}

}  // namespace
}  // namespace gyre::collectives
