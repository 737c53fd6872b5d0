#pragma once

#include <vector>

namespace gyre::collectives {

/// One round of Bruck's all-to-all, seen by every rank alike: the blocks with these numbers go to rank + `distance`,
/// and blocks of the same numbers come from rank - `distance` (mod n) in their place.
struct BruckRound {
  int distance;
  std::vector<int> blocks;

  bool operator==(const BruckRound&) const = default;
};

/// The ⌈log₂ n⌉ rounds of an all-to-all of short blocks: a message holds up to half of a rank's blocks, each of which
/// travels once for every bit of its number. Block k of rank r is at the beginning meant for rank r + k, and at the end
/// comes from rank r - k; block 0 stays.
///
/// Five ranks: distance 1 with blocks 1, 3; distance 2 with blocks 2, 3; distance 4 with block 4.
///
/// Source: Bruck et al., IEEE TPDS 8(11), 1997. Pure; no I/O; any size >= 1.
std::vector<BruckRound> bruck_rounds(int size);

}  // namespace gyre::collectives
