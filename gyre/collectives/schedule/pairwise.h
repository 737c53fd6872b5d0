#pragma once

#include <vector>

namespace gyre::collectives {

/// One step of an all-to-all, seen by one rank: both directions at the same time.
struct PairwiseStep {
  int send_to;       ///< Gets the part of this rank's buffer that is meant for it.
  int receive_from;  ///< Sends the part of its buffer that is meant for this rank.

  bool operator==(const PairwiseStep&) const = default;
};

/// The n-1 steps of an all-to-all: in step s (from 1) a rank sends to rank + s and receives from rank - s
/// (mod n), so that no rank is the target of two others in one step. What stays on the rank is a copy
/// and not part of the steps.
///
/// Four ranks, "to/from":
///
///   step     1     2     3
///   rank 0   1/3   2/2   3/1
///   rank 1   2/0   3/3   0/2
///   rank 2   3/1   0/0   1/3
///   rank 3   0/2   1/1   2/0
///
/// Pure; no I/O; any size >= 1.
std::vector<PairwiseStep> pairwise_steps(int rank, int size);

}  // namespace gyre::collectives
