#pragma once

#include <vector>

namespace gyre::group {

/// By rank, the parent of each in a tree of all ranks that has rank 0 as its root (-1), for what would otherwise pass
/// between rank 0 and everybody. Groups of up to 2 · arity ranks have no inner ranks but rank 0, so that everything
/// takes one hop. In larger ones the lowest rank of a host stands for the host: hosts form a tree in which each has up
/// to `arity` children, and so do the ranks of each host below their lowest. Parents are lower than their children.
/// `hosts`: see Topology. Pure.
std::vector<int> parents_in_rank_tree(const std::vector<std::vector<int>>& hosts, int arity);

}  // namespace gyre::group
