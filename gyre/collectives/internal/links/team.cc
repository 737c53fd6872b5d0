#include "gyre/collectives/internal/links/team.h"

#include <algorithm>
#include <numeric>

#include "gyre/base/check.h"

namespace gyre::collectives::internal {

Team everybody(const group::Topology& topology) {
  Team team{std::vector<int>(static_cast<std::size_t>(topology.size())), topology.rank()};
  std::iota(team.ranks.begin(), team.ranks.end(), 0);
  return team;
}

Team counterparts(const group::Topology& topology) {
  Team team;
  for (const std::vector<int>& local_ranks : topology.hosts()) {
    GYRE_CHECK(topology.local_rank() < static_cast<int>(local_ranks.size()));
    team.ranks.push_back(local_ranks[static_cast<std::size_t>(topology.local_rank())]);
  }
  team.place = topology.host_index();
  return team;
}

Team one_per_host(const group::Topology& topology, int chosen) {
  Team team;
  for (const std::vector<int>& local_ranks : topology.hosts()) {
    const bool has_chosen = std::find(local_ranks.begin(), local_ranks.end(), chosen) != local_ranks.end();
    team.ranks.push_back(has_chosen ? chosen : local_ranks.front());
  }
  const auto own = std::find(team.ranks.begin(), team.ranks.end(), topology.rank());
  team.place = own == team.ranks.end() ? -1 : static_cast<int>(own - team.ranks.begin());
  return team;
}

int fewest_on_a_host(const group::Topology& topology) {
  std::size_t fewest = topology.local_ranks().size();
  for (const std::vector<int>& local_ranks : topology.hosts()) fewest = std::min(fewest, local_ranks.size());
  return static_cast<int>(fewest);
}

}  // namespace gyre::collectives::internal
