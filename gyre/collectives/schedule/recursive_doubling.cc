#include "gyre/collectives/schedule/recursive_doubling.h"

#include "gyre/base/check.h"
#include "gyre/collectives/schedule/fold.h"

namespace gyre::collectives {
std::vector<DoublingStep> recursive_doubling_steps(int rank, int size) {
  GYRE_CHECK(size >= 1);
  GYRE_CHECK(rank >= 0);
  GYRE_CHECK(rank < size);
  const Fold fold(size);
  const int last_round = recursive_doubling_rounds(size) - 1;
  if (fold.sits_out(rank)) {
    return {{.round = 0, .partner = rank - 1, .send = true, .combine = Combine::kNothing},
            {.round = last_round, .partner = rank - 1, .send = false, .combine = Combine::kReplace}};
  }
  std::vector<DoublingStep> steps;
  if (fold.in_pair(rank)) {
    steps.push_back({.round = 0, .partner = rank + 1, .send = false, .combine = Combine::kOwnFirst});
  }
  int round = fold.excess > 0 ? 1 : 0;
  const int number = fold.number_of(rank);
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int partner_number = number ^ distance;
    steps.push_back({.round = round++,
                     .partner = fold.rank_of(partner_number),
                     .send = true,
                     .combine = number < partner_number ? Combine::kOwnFirst : Combine::kArrivedFirst});
  }
  if (fold.in_pair(rank)) {
    steps.push_back({.round = last_round, .partner = rank + 1, .send = true, .combine = Combine::kNothing});
  }
  return steps;
}

int recursive_doubling_rounds(int size) {
  GYRE_CHECK(size >= 1);
  const Fold fold(size);
  return fold.doublings() + (fold.excess > 0 ? 2 : 0);
}

}  // namespace gyre::collectives
