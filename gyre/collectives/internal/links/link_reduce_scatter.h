#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/internal/shared/shared_room.h"
#include "gyre/group/lane.h"

// Reduce-scatter over links. Contracts are those of collectives.h. The order of a sum is that of an allreduce where it
// can be: a host combines its ranks' contributions in rank order; then the hosts' values follow, in the order in which
// they come after the host that owns the piece, which is the last one.

namespace gyre::collectives::internal {

/// Among ranks that share no memory, each a host of its own: the first half of a ring-allreduce.
void reduce_scatter_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::byte> input,
                               std::span<const std::size_t> sizes_bytes, std::span<std::byte> output,
                               const ReductionPlan& plan);

/// Several hosts of which some have several ranks. With K ranks on the host that has the fewest, the pieces of each
/// host's ranks are dealt in K slices. Rank j < K of each host sums slice j of every host, in shared memory, and goes
/// around a ring with rank j of the other hosts; then the ranks of a host exchange what they have for their pieces.
/// What leaves a host is what one rank with the host's sums would send.
void reduce_scatter_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective,
                             std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                             std::span<std::byte> output, const ReductionPlan& plan);

}  // namespace gyre::collectives::internal
