#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/internal/shared/shared_room.h"

// The other collectives among the ranks of one host, in pieces through the mailboxes, one arrival per piece. Contracts
// are those of collectives.h; ranks are local ranks.

namespace gyre::collectives::internal {

void broadcast_shared(SharedRoom& room, std::span<std::byte> buffer, int root);

void allgather_shared(SharedRoom& room, std::span<const std::byte> own, std::span<const std::size_t> sizes_bytes,
                      std::span<std::byte> output);

void reduce_scatter_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                           std::span<std::byte> output, const ReductionPlan& plan);

/// A reduce-scatter whose results are partial sums (add_up()), to which other hosts' are added.
void add_up_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                   std::span<std::byte> sums, const ReductionPlan& plan);

/// Copies bytes [begin, begin + size) of this rank's contribution to local rank `owner` to `to`.
using ContributionCopy = std::function<void(std::byte* to, int owner, std::size_t begin, std::size_t size)>;

/// The same for contributions that do not lie in the order of the local ranks; called in ascending order of `begin`.
void add_up_shared(SharedRoom& room, const ContributionCopy& copy, std::span<const std::size_t> sizes_bytes,
                   std::span<std::byte> sums, const ReductionPlan& plan);

void all_to_all_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> send_bytes,
                       std::span<std::byte> output, std::span<const std::size_t> receive_bytes);

}  // namespace gyre::collectives::internal
