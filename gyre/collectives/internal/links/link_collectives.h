#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/collectives/internal/links/team.h"
#include "gyre/group/lane.h"

// The other collectives over links, between all ranks of the lane where nothing else is said, wherever they are.
// Contracts are those of collectives.h.

namespace gyre::collectives::internal {

/// A binomial tree among the ranks of a team; a rank forwards a piece as soon as it has it. `root` is one of them.
void broadcast_over_links(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> buffer,
                          int root);

/// A ring: every rank sends each contribution once, a piece as soon as it has it.
void allgather_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::byte> own,
                          std::span<const std::size_t> sizes_bytes, std::span<std::byte> output);

/// Pairs: up to n-1 exchanges, each with another peer. What is empty is not sent: a gather or scatter written as an
/// all-to-all needs the root's links only.
void all_to_all_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::byte> input,
                           std::span<const std::size_t> send_bytes, std::span<std::byte> output,
                           std::span<const std::size_t> receive_bytes);

/// Bruck's algorithm. `from_each` and `to_each` have a number for each rank.
void exchange_numbers_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::int64_t> to_each,
                                 std::span<std::int64_t> from_each);

/// Dissemination: in round k every rank tells rank + 2^k and hears from rank - 2^k; ceil(log2 n) rounds.
/// Source: Hensgen, Finkel, Manber, International Journal of Parallel Programming 17(1), 1988.
void barrier_over_links(group::Lane& lane, std::uint64_t collective);

}  // namespace gyre::collectives::internal
