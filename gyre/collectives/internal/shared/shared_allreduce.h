#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/internal/shared/shared_room.h"

// Allreduce among the ranks of one host. Sums run in rank order whatever the way, so the ways give the same bits.

namespace gyre::collectives::internal {

/// Every rank puts its contribution (at most kSlotBytes) into its mailbox and reduces all of them privately:
/// one arrival.
void allreduce_by_mailbox(SharedRoom& room, std::span<std::byte> buffer, const ReductionPlan& plan);

/// Pieces pass through the mailboxes. Two ranks reduce each piece privately, straight into their buffers, one
/// arrival per piece. More ranks share the work: each reduces its slice of the piece in its own mailbox, and all copy
/// the slices out; still one arrival per piece, because copy-in of one piece, reduction of the one before and
/// copy-out of the one before that fall into the same interval.
void allreduce_by_pipeline(SharedRoom& room, std::span<std::byte> buffer, const ReductionPlan& plan);

/// Where a stretch of the arenas begins, by local rank.
std::vector<std::byte*> places_in_arenas(const SharedRoom& room, std::size_t offset_bytes, std::size_t size_bytes);

/// Each rank reduces its slice over all buffers into all of them. `places`: where they are, by local rank; all ranks
/// have arrived there. One more arrival: all slices are out.
void allreduce_in_places(SharedRoom& room, std::vector<std::byte*> places, std::size_t size_bytes,
                         const ReductionPlan& plan);

}  // namespace gyre::collectives::internal
