#include "gyre/collectives/schedule/binomial_tree.h"

#include <algorithm>
#include <bit>

#include "gyre/base/check.h"

namespace gyre::collectives {

std::vector<TreeStep> binomial_broadcast_steps(int rank, int size, int root) {
  GYRE_CHECK(size >= 1);
  GYRE_CHECK(rank >= 0);
  GYRE_CHECK(rank < size);
  GYRE_CHECK(root >= 0);
  GYRE_CHECK(root < size);
  const int relative = (rank - root + size) % size;
  const auto rank_of = [&](int relative_rank) { return (relative_rank + root) % size; };
  std::vector<TreeStep> steps;
  int round = 0;
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; distance >= 1; distance /= 2) {
    const int place = relative % (2 * distance);
    if (place == 0 && relative + distance < size) {
      steps.push_back({.round = round, .partner = rank_of(relative + distance), .send = true});
    } else if (place == distance) {
      steps.push_back({.round = round, .partner = rank_of(relative - distance), .send = false});
    }
    ++round;
  }
  return steps;
}

}  // namespace gyre::collectives
