#include "gyre/engine/internal/open/negotiation_tree.h"

#include <algorithm>
#include <cstddef>

#include "gyre/base/check.h"

namespace gyre::engine::internal {

namespace {

/// By rank, the children of each.
using Tree = std::vector<std::vector<int>>;

/// A heap: the parent of the member at place i > 0 is at (i - 1) / arity.
void connect(const std::vector<int>& members, int arity, Tree& tree) {
  for (std::size_t place = 1; place < members.size(); ++place) {
    const int parent = members[(place - 1) / static_cast<std::size_t>(arity)];
    tree[static_cast<std::size_t>(parent)].push_back(members[place]);
  }
}

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
  GYRE_CHECK(arity >= 1);
  std::size_t size = 0;
  for (const auto& ranks : hosts) size += ranks.size();
  Tree tree(size);
  if (size <= 2 * static_cast<std::size_t>(arity)) {
    for (std::size_t other = 1; other < size; ++other) tree[0].push_back(static_cast<int>(other));
  } else {
    std::vector<int> leaders;
    for (const auto& ranks : hosts) leaders.push_back(ranks.front());
    connect(leaders, arity, tree);
    for (const auto& ranks : hosts) connect(ranks, arity, tree);
  }
  NegotiationPlace place;
  for (const int child : tree[static_cast<std::size_t>(rank)]) {
    place.children.push_back({child, ranks_below(tree, child)});
  }
  for (std::size_t other = 0; other < size; ++other) {
    if (std::ranges::find(tree[other], rank) != tree[other].end()) place.parent = static_cast<int>(other);
  }
  return place;
}

}  // namespace gyre::engine::internal
