// The ring is right when a pencil says so: the printed table, then a simulation with symbolic contributions.
#include "gyre/collectives/schedule/ring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "gyre/collectives/schedule/chunks.h"

namespace gyre::collectives {
namespace {

// What a rank holds in a chunk: the ranks whose contributions are in it, in the order of the sum.
using Contributions = std::vector<int>;
// [rank][chunk]
using Buffers = std::vector<std::vector<Contributions>>;
using Schedules = std::vector<std::vector<RingStep>>;

Schedules schedules_of(std::vector<RingStep> (*steps_of)(int, int), int size) {
  Schedules schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(steps_of(rank, size));
  return schedules;
}

// All ranks take one step at a time; a message is what its sender held before the step.
void simulate(const Schedules& schedules, Buffers& buffers) {
  const std::size_t size = schedules.size();
  for (std::size_t step = 0; step < schedules[0].size(); ++step) {
    const Buffers before = buffers;
    for (std::size_t rank = 0; rank < size; ++rank) {
      const std::size_t previous = (rank + size - 1) % size;
      const RingStep& mine = schedules[rank].at(step);
      ASSERT_EQ(schedules[previous].at(step).send_chunk, mine.receive_chunk) << "partners disagree in step " << step;
      ASSERT_NE(mine.send_chunk, mine.receive_chunk);
      Contributions arrived = before[previous][mine.receive_chunk];
      Contributions& own = buffers[rank][mine.receive_chunk];
      if (mine.reduce) arrived.insert(arrived.end(), own.begin(), own.end());
      own = arrived;
    }
  }
}

// ((c+1 ∘ c+2) ∘ … ) ∘ c
Contributions promised_order(int chunk, int size) {
  Contributions order;
  for (int distance = 1; distance <= size; ++distance) order.push_back((chunk + distance) % size);
  return order;
}

Buffers every_rank_contributes(int size) {
  Buffers buffers(size);
  for (int rank = 0; rank < size; ++rank) buffers[rank].assign(size, Contributions{rank});
  return buffers;
}

TEST(ring, the_table_for_four_ranks_is_the_one_in_the_comment) {
  std::string table = "step     0      1      2      3     4     5";
  for (int rank = 0; rank < 4; ++rank) {
    std::string line = fmt::format("\nrank {}", rank);
    for (const RingStep& step : ring_allreduce_steps(rank, 4)) {
      line += fmt::format("   {}/{}{}", step.send_chunk, step.receive_chunk, step.reduce ? "+" : "");
    }
    table += line;
  }
  EXPECT_EQ(table,
            "step     0      1      2      3     4     5\n"
            "rank 0   3/2+   2/1+   1/0+   0/3   3/2   2/1\n"
            "rank 1   0/3+   3/2+   2/1+   1/0   0/3   3/2\n"
            "rank 2   1/0+   0/3+   3/2+   2/1   1/0   0/3\n"
            "rank 3   2/1+   1/0+   0/3+   3/2   2/1   1/0");
}

TEST(ring, allreduce_brings_every_contribution_to_every_rank_exactly_once_in_the_promised_order) {
  for (int size = 1; size <= 17; ++size) {
    const Schedules schedules = schedules_of(ring_allreduce_steps, size);
    for (const auto& steps : schedules) ASSERT_EQ(steps.size(), static_cast<std::size_t>(2 * (size - 1)));
    Buffers buffers = every_rank_contributes(size);
    simulate(schedules, buffers);
    for (int rank = 0; rank < size; ++rank) {
      for (int chunk = 0; chunk < size; ++chunk) {
        EXPECT_EQ(buffers[rank][chunk], promised_order(chunk, size)) << rank << " of " << size;
      }
    }
  }
}

TEST(ring, reduce_scatter_leaves_chunk_r_complete_on_rank_r) {
  for (int size = 1; size <= 17; ++size) {
    const Schedules schedules = schedules_of(ring_reduce_scatter_steps, size);
    Buffers buffers = every_rank_contributes(size);
    simulate(schedules, buffers);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(schedules[rank].size(), static_cast<std::size_t>(size - 1));
      EXPECT_EQ(buffers[rank][rank], promised_order(rank, size));
    }
  }
}

TEST(ring, allgather_brings_chunk_r_of_rank_r_to_all) {
  for (int size = 1; size <= 17; ++size) {
    Buffers buffers(size, std::vector<Contributions>(size));
    for (int rank = 0; rank < size; ++rank) buffers[rank][rank] = {rank};
    simulate(schedules_of(ring_allgather_steps, size), buffers);
    for (int rank = 0; rank < size; ++rank) {
      for (int chunk = 0; chunk < size; ++chunk) EXPECT_EQ(buffers[rank][chunk], Contributions{chunk});
    }
  }
}

TEST(ring, a_rank_sends_and_receives_2_n_minus_1_nths_of_the_buffer) {
  for (int size = 1; size <= 17; ++size) {
    const std::size_t count = 1000 * static_cast<std::size_t>(size);
    const std::vector<ElementRange> chunks = even_chunks(count, size);
    for (int rank = 0; rank < size; ++rank) {
      std::size_t sent = 0;
      std::size_t received = 0;
      for (const RingStep& step : ring_allreduce_steps(rank, size)) {
        sent += chunks[step.send_chunk].count;
        received += chunks[step.receive_chunk].count;
      }
      EXPECT_EQ(sent * static_cast<std::size_t>(size), 2 * static_cast<std::size_t>(size - 1) * count);
      EXPECT_EQ(received, sent);
    }
  }
}

}  // namespace
}  // namespace gyre::collectives
