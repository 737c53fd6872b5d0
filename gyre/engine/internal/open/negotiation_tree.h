#pragma once

#include <vector>

namespace gyre::engine::internal {

/// Through whom a rank negotiates. Ranks that have children merge what these announce (Aggregator), so that no rank
/// exchanges more than a constant number of messages for an operation, however many ranks there are.
struct NegotiationPlace {
  int parent = -1;  ///< -1: rank 0, which decides.
  struct Child {
    int rank = 0;
    std::vector<int> ranks;  ///< For which it speaks: itself and all below it, ascending.
  };
  std::vector<Child> children;
};

/// The place of `rank` in the tree of all ranks. Groups of up to 2 · arity ranks have no inner ranks but rank 0, so
/// that their messages take one hop. In larger ones the lowest rank of a host speaks for the host: hosts form a tree in
/// which each has up to `arity` children, and so do the ranks of each host below their lowest. Parents are lower than
/// their children. `hosts`: see Topology. Pure.
NegotiationPlace negotiation_place(const std::vector<std::vector<int>>& hosts, int rank, int arity);

}  // namespace gyre::engine::internal
