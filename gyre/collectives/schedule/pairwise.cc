#include "gyre/collectives/schedule/pairwise.h"

#include "gyre/base/check.h"

namespace gyre::collectives {

std::vector<PairwiseStep> pairwise_steps(int rank, int size) {
  GYRE_CHECK(size >= 1);
  GYRE_CHECK(rank >= 0);
  GYRE_CHECK(rank < size);
  std::vector<PairwiseStep> steps;
  steps.reserve(static_cast<std::size_t>(size - 1));
  for (int distance = 1; distance < size; ++distance) {
    steps.push_back({.send_to = (rank + distance) % size, .receive_from = (rank - distance + size) % size});
  }
  return steps;
}

}  // namespace gyre::collectives
