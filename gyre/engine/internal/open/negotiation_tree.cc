#include "gyre/engine/internal/open/negotiation_tree.h"

#include <algorithm>
#include <cstddef>

#include "gyre/group/rank_tree.h"

namespace gyre::engine::internal {

namespace {

/// By rank, the children of each.
using Tree = std::vector<std::vector<int>>;

std::vector<int> ranks_below(const Tree& tree, int root) {
  std::vector<int> ranks{root};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& children = tree[static_cast<std::size_t>(ranks[i])];
    ranks.insert(ranks.end(), children.begin(), children.end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

NegotiationPlace negotiation_place(const std::vector<std::vector<int>>& hosts, int rank, int arity) {
  const std::vector<int> parents = group::parents_in_rank_tree(hosts, arity);
  Tree tree(parents.size());
  for (std::size_t other = 1; other < parents.size(); ++other) {
    tree[static_cast<std::size_t>(parents[other])].push_back(static_cast<int>(other));
  }
  NegotiationPlace place;
  place.parent = parents[static_cast<std::size_t>(rank)];
  for (const int child : tree[static_cast<std::size_t>(rank)]) {
    place.children.push_back({child, ranks_below(tree, child)});
  }
  return place;
}

}  // namespace gyre::engine::internal
