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

/// The place of `rank` in the tree of all ranks (group/rank_tree.h). `hosts`: see Topology. Pure.
NegotiationPlace negotiation_place(const std::vector<std::vector<int>>& hosts, int rank, int arity);

}  // namespace gyre::engine::internal
