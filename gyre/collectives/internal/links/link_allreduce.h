#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/collectives/link_cost.h"
#include "gyre/group/lane.h"

// Allreduce over links among the ranks of a team of two or more.

namespace gyre::collectives::internal {

/// What flows over links and is combined there: partial sums, in their type.
struct LinkReduction {
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  Scaling at_the_end{};
  // How float32 travels. The results of 16-bit floats travel as what they are.
  WireFormat contributions = WireFormat::kNative;  ///< In the first hop, where they are not sums yet.
  WireFormat sums = WireFormat::kNative;
  WireFormat results = WireFormat::kNative;  ///< They are rounded to it on all ranks.

  std::size_t elements_in(std::size_t size_bytes) const { return size_bytes / size_of(type); }
};

/// `of_ranks`: each member of the team brings the contribution of one rank, not the sum of a host.
LinkReduction link_reduction(const ReductionPlan& plan, bool of_ranks);

/// A stretch of the buffer that a ring works on.
using RangeHook = std::function<void(std::size_t offset_bytes, std::size_t size_bytes)>;

/// Work that a ring does piece by piece while other pieces are on the wire. Each may be empty.
struct RingHooks {
  RangeHook prepare;  ///< Brings this rank's contribution into the buffer; called once for every byte, before its use.
  RangeHook publish;  ///< The buffer holds the result there; called once for every byte.
};

/// `sums`: this member's. 2(n-1) steps, 2(n-1)/n of the buffer sent per rank. Streaming: a piece goes on to the next
/// rank as soon as it has arrived and is reduced, while later ones of its step are still on their way, so the link does
/// not idle between steps.
void allreduce_by_ring(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                       const LinkReduction& reduction, const RingHooks& hooks = {});

/// allreduce_by_ring() or allreduce_by_halving(), as `schedule` says: every chunk is summed up by one member.
void allreduce_in_chunks(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                         const LinkReduction& reduction, LinkSchedule schedule, const RingHooks& hooks = {});

/// log2(n) exchanges of the whole buffer.
void allreduce_by_doubling(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                           const LinkReduction& reduction);

/// Among all ranks of the lane, wherever they are, by ring or by halving.
void allreduce_all_in_chunks(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                             const ReductionPlan& plan, LinkSchedule schedule);
/// The same by doubling.
void allreduce_all_by_doubling(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                               const ReductionPlan& plan);

/// Bytes of a ring's piece for chunks of this size: several per chunk, so that the steps overlap, but none so
/// small that frames cost more than 0.25 %.
std::size_t ring_piece_bytes(std::size_t chunk_bytes);

}  // namespace gyre::collectives::internal
