#include "gyre/collectives/schedule/ring.h"

#include "gyre/base/check.h"

namespace gyre::collectives {
namespace {

/// size - 1 steps that hand chunks around the ring, starting with `first_chunk`.
std::vector<RingStep> pass_around(int first_chunk, int size, bool reduce) {
  const auto wrapped = [size](int chunk) { return ((chunk % size) + size) % size; };
  std::vector<RingStep> steps;
  steps.reserve(static_cast<std::size_t>(size - 1));
  for (int step = 0; step < size - 1; ++step) {
    steps.push_back({.send_chunk = wrapped(first_chunk - step),
                     .receive_chunk = wrapped(first_chunk - step - 1),
                     .reduce = reduce});
  }
  return steps;
}

void check_rank(int rank, int size) {
  GYRE_CHECK(size >= 1);
  GYRE_CHECK(rank >= 0);
  GYRE_CHECK(rank < size);
}

}  // namespace

std::vector<RingStep> ring_reduce_scatter_steps(int rank, int size) {
  check_rank(rank, size);
  return pass_around(rank - 1, size, true);
}

std::vector<RingStep> ring_allgather_steps(int rank, int size) {
  check_rank(rank, size);
  return pass_around(rank, size, false);
}

std::vector<RingStep> ring_allreduce_steps(int rank, int size) {
  std::vector<RingStep> steps = ring_reduce_scatter_steps(rank, size);
  const std::vector<RingStep> gather = ring_allgather_steps(rank, size);
  steps.insert(steps.end(), gather.begin(), gather.end());
  return steps;
}

}  // namespace gyre::collectives
