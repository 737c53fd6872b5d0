#pragma once

#include <vector>

#include "gyre/group/topology.h"

namespace gyre::collectives::internal {

/// The ranks among which a schedule runs over links: place p of the schedule is ranks[p]. All of them make the same
/// list.
struct Team {
  std::vector<int> ranks;
  int place = 0;  ///< This rank's.

  int size() const { return static_cast<int>(ranks.size()); }
  int rank_at(int any_place) const { return ranks[static_cast<std::size_t>(any_place)]; }
  int next() const { return rank_at((place + 1) % size()); }
  int previous() const { return rank_at((place + size() - 1) % size()); }
};

/// All ranks, in their order.
Team everybody(const group::Topology& topology);

/// The ranks that have this rank's number on their hosts, in the order of the hosts, which must all have so many.
Team counterparts(const group::Topology& topology);

/// One rank of each host, in the order of the hosts: `chosen` on its own host, the lowest on every other one. `place`
/// is -1 on ranks that are not part of it.
Team one_per_host(const group::Topology& topology, int chosen);

/// Ranks on the host that has the fewest.
int fewest_on_a_host(const group::Topology& topology);

}  // namespace gyre::collectives::internal
