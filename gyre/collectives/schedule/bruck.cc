#include "gyre/collectives/schedule/bruck.h"

#include <utility>

#include "gyre/base/check.h"

namespace gyre::collectives {

std::vector<BruckRound> bruck_rounds(int size) {
  GYRE_CHECK(size >= 1);
  std::vector<BruckRound> rounds;
  for (int distance = 1; distance < size; distance *= 2) {
    BruckRound round{distance, {}};
    for (int block = distance; block < size; ++block) {
      if ((block & distance) != 0) round.blocks.push_back(block);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace gyre::collectives
