#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/group/lane.h"

namespace gyre::collectives::internal {

/// allreduce_by_ring() in 2 log2(n) steps, for sizes at which a ring would mostly wait for latencies; see
/// schedule/halving_doubling.h. Pieces are reduced while later ones of their step are on the wire.
void allreduce_by_halving(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                          const LinkReduction& reduction, const RingHooks& hooks = {});

}  // namespace gyre::collectives::internal
