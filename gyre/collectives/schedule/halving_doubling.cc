#include "gyre/collectives/schedule/halving_doubling.h"

#include "gyre/base/check.h"
#include "gyre/collectives/schedule/fold.h"

namespace gyre::collectives {

int halving_chunks(int size) {
  GYRE_CHECK(size >= 1);
  return Fold(size).core;
}

std::vector<HalvingStep> halving_doubling_steps(int rank, int size) {
  GYRE_CHECK(size >= 1);
  GYRE_CHECK(rank >= 0);
  GYRE_CHECK(rank < size);
  const Fold fold(size);
  const ChunkRange all{0, fold.core};
  const int last_round = halving_doubling_rounds(size) - 1;
  if (fold.sits_out(rank)) {
    return {{.round = 0, .partner = rank - 1, .send = all, .receive = {}, .reduce = true},
            {.round = last_round, .partner = rank - 1, .send = {}, .receive = all, .reduce = false}};
  }
  std::vector<HalvingStep> steps;
  int round = 0;
  if (fold.excess > 0) {
    if (fold.in_pair(rank)) {
      steps.push_back({.round = 0, .partner = rank + 1, .send = {}, .receive = all, .reduce = true});
    }
    ++round;
  }
  const int number = fold.number_of(rank);
  /// The chunks that this number and those that differ from it below `distance` own.
  const auto around = [](int of, int distance) {
    const int begin = of / distance * distance;
    return ChunkRange{begin, begin + distance};
  };
  for (int distance = fold.core / 2; distance > 0; distance /= 2) {
    const int partner = number ^ distance;
    steps.push_back({.round = round++,
                     .partner = fold.rank_of(partner),
                     .send = around(partner, distance),
                     .receive = around(number, distance),
                     .reduce = true});
  }
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int partner = number ^ distance;
    steps.push_back({.round = round++,
                     .partner = fold.rank_of(partner),
                     .send = around(number, distance),
                     .receive = around(partner, distance),
                     .reduce = false});
  }
  if (fold.in_pair(rank)) {
    steps.push_back({.round = last_round, .partner = rank + 1, .send = all, .receive = {}, .reduce = false});
  }
  return steps;
}

int halving_doubling_rounds(int size) {
  GYRE_CHECK(size >= 1);
  const Fold fold(size);
  return 2 * fold.doublings() + (fold.excess > 0 ? 2 : 0);
}

}  // namespace gyre::collectives
