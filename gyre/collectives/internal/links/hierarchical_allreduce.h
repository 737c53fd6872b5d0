#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/internal/shared/shared_room.h"
#include "gyre/collectives/link_cost.h"
#include "gyre/group/lane.h"

// Allreduce over several hosts of which some have several ranks: each host sums in shared memory, in rank order, then
// the hosts' sums travel over links, then the result goes to all ranks of the host. What leaves a host is what one rank
// with the host's sum would send, 2(H-1)/H of the buffer between H hosts.

namespace gyre::collectives::internal {

/// At most kSlotBytes: summed by mailbox; one rank of each host takes part in a recursive doubling.
void allreduce_small_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective,
                              std::span<std::byte> buffer, const ReductionPlan& plan);

/// With K ranks on the host that has the fewest, the buffer is dealt in K slices. Rank j < K of each host sums slice j
/// of its host, and goes around a ring with rank j of the other hosts, or halves and doubles with them, all K at once,
/// each over its own links.
void allreduce_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective, std::span<std::byte> buffer,
                        const ReductionPlan& plan, LinkSchedule schedule);

/// The same for buffers that all ranks of the host see (`places`, by local rank), without a further copy: a rank sums a
/// piece over all places when it is about to be sent or added to, and writes it to all places when it is finished, so
/// both are hidden behind the wire. All ranks of the host have entered. Hosts may differ in which of the two they use:
/// on the wire it is the same.
void allreduce_places_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective,
                               std::span<std::byte* const> places, std::size_t size_bytes, const ReductionPlan& plan,
                               LinkSchedule schedule);

}  // namespace gyre::collectives::internal
