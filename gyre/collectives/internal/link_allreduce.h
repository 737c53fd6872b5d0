#pragma once

#include <cstdint>
#include <span>

#include "gyre/collectives/internal/reduction_plan.h"
#include "gyre/group/lane.h"

// Allreduce over links between all ranks of the lane, wherever they are.

namespace gyre::collectives::internal {

/// Walks ring_allreduce_steps: 2(n-1) steps, 2(n-1)/n of the buffer sent per rank.
void allreduce_by_ring(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                       const ReductionPlan& plan);

/// Walks recursive_doubling_steps: ceil(log2 n) exchanges of the whole buffer, two more where n is no power of two.
void allreduce_by_doubling(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                           const ReductionPlan& plan);

}  // namespace gyre::collectives::internal
