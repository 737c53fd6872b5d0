#include "gyre/jobs/scheduler/internal/reservation.h"

#include <algorithm>

namespace gyre::jobs::scheduler {
namespace {

/// Nodes of one cluster and cores of one quota.
struct Amount {
  int nodes = 0;
  int cores = 0;

  void add(const Demand& wanted, const Demand& returned) {
    if (returned.shares_nodes(wanted)) nodes += returned.nodes;
    if (returned.shares_quota(wanted)) cores += returned.cores;
  }
  bool covers(const Demand& demand) const { return nodes >= demand.nodes && (!demand.quota || cores >= demand.cores); }
};

struct Fit {
  Time when = kNever;
  Amount spare;
};

/// The first moment at which `free`, together with what the holds with a known end give back, covers the demand.
Fit first_fit(const Ledger& ledger, const Demand& demand, Amount free) {
  std::vector<const Hold*> ends;
  for (const Hold& hold : ledger.holds()) {
    if (hold.end && (hold.demand.shares_nodes(demand) || hold.demand.shares_quota(demand))) ends.push_back(&hold);
  }
  std::ranges::sort(ends, {}, [](const Hold* hold) { return *hold->end; });
  Time when = ledger.state().now;
  auto next = ends.begin();
  while (!free.covers(demand)) {
    if (next == ends.end()) return {};
    when = *(*next)->end;
    for (; next != ends.end() && *(*next)->end == when; ++next) free.add(demand, (*next)->demand);
  }
  return {when, {free.nodes - demand.nodes, free.cores - demand.cores}};
}

}  // namespace

Reservation reserve(const Ledger& ledger, const Demand& demand) {
  const NodeCounts& counts = ledger.nodes(demand.cluster);
  Amount free{.nodes = static_cast<int>(counts.idle.size()) - counts.to_leave,
              .cores = demand.quota ? ledger.cores_left(*demand.quota) : 0};
  const Fit latest = first_fit(ledger, demand, free);
  free.nodes += static_cast<int>(counts.preparing.size()) + counts.to_come;
  for (const Hold& hold : ledger.holds()) {
    if (!hold.end) free.add(demand, hold.demand);
  }
  const Fit earliest = first_fit(ledger, demand, free);
  return {.demand = demand,
          .latest = latest.when,
          .earliest = earliest.when,
          .spare_nodes = latest.spare.nodes,
          .spare_cores = latest.spare.cores};
}

bool could_delay(const Reservation& head, const Demand& demand, Time end) {
  const bool takes_nodes = demand.shares_nodes(head.demand);
  const bool takes_cores = demand.shares_quota(head.demand);
  if (!takes_nodes && !takes_cores) return false;
  if (end <= head.earliest) return false;
  // Nobody knows when the head will start, so nobody knows what is spare then.
  if (head.earliest != head.latest) return true;
  return (takes_nodes && demand.nodes > head.spare_nodes) || (takes_cores && demand.cores > head.spare_cores);
}

}  // namespace gyre::jobs::scheduler
