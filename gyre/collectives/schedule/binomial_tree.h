#pragma once

#include <vector>

namespace gyre::collectives {

/// One message of a binomial tree, seen by one rank.
struct TreeStep {
  int round;    ///< Number of the step, counted alike on all ranks; a rank may sit a round out.
  int partner;  ///< The rank to send to or to receive from.
  bool send;    ///< Send the whole buffer to `partner`; otherwise receive it from there.

  bool operator==(const TreeStep&) const = default;
};

/// Broadcast from `root`: ceil(log2 n) rounds, every other rank receives exactly once, and sends only
/// after that. With v = (rank - root) mod n, in the round of distance d = 2^k, k counting down to 0, each v that is
/// a multiple of 2d sends to v + d, if there is one.
///
/// Six ranks, root 0, ">p" sends to p, "<p" receives from p:
///
///   round    0    1    2
///   rank 0   >4   >2   >1
///   rank 1             <0
///   rank 2        <0   >3
///   rank 3             <2
///   rank 4   <0        >5
///   rank 5             <4
///
/// Pure; no I/O; any size >= 1 and root.
std::vector<TreeStep> binomial_broadcast_steps(int rank, int size, int root);

}  // namespace gyre::collectives
