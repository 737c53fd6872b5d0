#include "gyre/group/rank_tree.h"

#include <cstddef>

#include "gyre/base/check.h"

namespace gyre::group {

namespace {

/// A heap: the parent of the member at place i > 0 is at (i - 1) / arity.
void connect(const std::vector<int>& members, int arity, std::vector<int>& parents) {
  for (std::size_t place = 1; place < members.size(); ++place) {
    parents[static_cast<std::size_t>(members[place])] = members[(place - 1) / static_cast<std::size_t>(arity)];
  }
}

}  // namespace

std::vector<int> parents_in_rank_tree(const std::vector<std::vector<int>>& hosts, int arity) {
  GYRE_CHECK(arity >= 1);
  std::size_t size = 0;
  for (const auto& ranks : hosts) size += ranks.size();
  std::vector<int> parents(size, 0);
  parents[0] = -1;
  if (size <= 2 * static_cast<std::size_t>(arity)) return parents;
  std::vector<int> leaders;
  for (const auto& ranks : hosts) leaders.push_back(ranks.front());
  connect(leaders, arity, parents);
  for (const auto& ranks : hosts) connect(ranks, arity, parents);
  return parents;
}

}  // namespace gyre::group
