#include "gyre/collectives/schedule/recursive_doubling.h"

#include <bit>

#include "gyre/base/check.h"

namespace gyre::collectives {
namespace {

/// The ranks that take part in the doubling proper are numbered 0 … core - 1, in rank order.
struct Fold {
  explicit Fold(int size) : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), excess(size - core) {}

  bool in_pair(int rank) const { return rank < 2 * excess; }
  bool sits_out(int rank) const { return in_pair(rank) && rank % 2 == 1; }
  int number_of(int rank) const { return in_pair(rank) ? rank / 2 : rank - excess; }
  int rank_of(int number) const { return number < excess ? 2 * number : number + excess; }

  int core;
  int excess;
};

}  // namespace

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
  const int doublings = std::countr_zero(static_cast<unsigned>(fold.core));
  return doublings + (fold.excess > 0 ? 2 : 0);
}

}  // namespace gyre::collectives
