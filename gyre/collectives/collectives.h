#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gyre/collectives/data_type.h"
#include "gyre/collectives/peer_mapped.h"
#include "gyre/collectives/select.h"
#include "gyre/group/lane.h"

// The collective operations, each a blocking call that every rank of the lane's group makes at the same place of
// the lane's order, with matching arguments (the engine has checked that they match). Not thread-safe: one thread
// owns the lane. They throw what the lane's waits throw (kPeerLost, kAborted, kTimeout, kProtocol, kCorruptData);
// after a throw the group is of no further use.
//
// Same bits: every rank ends with identical bytes, and a repeated run gives the same ones. On one host sums run in
// rank order, ((r0 + r1) + r2) + …; the sums of hosts in an order fixed by the algorithm and the number of hosts.

namespace gyre::collectives {

/// What becomes of each element: postscale · (prescale·x0 ∘ prescale·x1 ∘ … ∘ prescale·x(n-1)), and for kAverage that
/// divided by the number of ranks. In which precision, and where it is rounded, does not depend on where the ranks are:
/// see reduce() in kernels.h, and docs/guide/numbers.md.
struct Reduction {
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  double prescale = 1.0;   ///< Multiplies each contribution before it is combined.
  double postscale = 1.0;  ///< Multiplies the result.
  /// How float32 travels over links in allreduce and allreduce_in_arena; equal on all ranks. Other types and other
  /// collectives travel as they are, and ranks that share a host's memory never encode anything between themselves.
  /// What arrives is combined in float32. Partial sums are rounded each time they are sent (the first is what one
  /// host has summed), the result once more: it is a value that the format holds, with equal bits on all ranks.
  WireFormat wire = WireFormat::kNative;
  /// By how many a kAverage divides; 0: by all ranks.
  int average_over = 0;
};

/// Why such elements cannot be reduced so; empty: they can. The operations below throw Error(kInvalidArgument) with it,
/// and expect that callers who can answer for one operation alone have asked before.
std::string reduction_problem(const Reduction& reduction);

/// How it travelled, which choose_allreduce() explains. In place on every rank. `buffer`: a whole number of elements of
/// reduction.type; same length on all ranks; may be empty.
Algorithm allreduce(group::Lane& lane, std::span<std::byte> buffer, const Reduction& reduction);

/// The same for a buffer that the other ranks of this host may map: where all ranks of a host offer theirs, they are
/// reduced in place. All ranks call it with the PeerMappings of the same lane.
Algorithm allreduce(group::Lane& lane, std::span<std::byte> buffer, const Reduction& reduction, PeerMappings& memory,
                    const PeerMappedBuffer& own);

/// Every rank's copy of a buffer that lies in the lane's segment (see SharedLayout::arena): `offset_bytes` and
/// `size_bytes` within each rank's arena, the same everywhere, multiples of 64. One pass on one host: each copy is read
/// once and written once. Over several hosts the arena's copy of this rank is reduced over links.
Algorithm allreduce_in_arena(group::Lane& lane, std::size_t offset_bytes, std::size_t size_bytes,
                             const Reduction& reduction);

/// This rank's arena in the lane's segment: where allreduce_in_arena works. Empty when the lane has none.
std::span<std::byte> arena(group::Lane& lane);

/// What an allreduce makes of all ranks' contributions, for ranks that see each other's already: in rank order, or with
/// `hosts` first those of each of them, in the order given, and then the hosts' values, in theirs. They may not be
/// `result`. Pure but for the memory given.
void combine_contributions(std::span<std::byte> result, std::span<const std::byte* const> contributions,
                           const Reduction& reduction, std::span<const std::vector<int>> hosts = {});

void broadcast(group::Lane& lane, std::span<std::byte> buffer, int root);

/// Rank r contributes `own` (sizes_bytes[r] bytes); `output` receives all contributions in rank order, without gaps.
/// `own` may lie at its place in `output`, and may not overlap it otherwise.
void allgather(group::Lane& lane, std::span<const std::byte> own, std::span<const std::size_t> sizes_bytes,
               std::span<std::byte> output);

/// `input`: the concatenation of one piece per rank, piece r of sizes_bytes[r]; `output` receives this rank's piece,
/// reduced.
void reduce_scatter(group::Lane& lane, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                    std::span<std::byte> output, const Reduction& reduction);

/// Piece r of `input` (send_bytes[r]) goes to rank r; `output` receives the pieces from all ranks in rank order
/// (receive_bytes). Over links ranks that have nothing for each other exchange no message.
void all_to_all(group::Lane& lane, std::span<const std::byte> input, std::span<const std::size_t> send_bytes,
                std::span<std::byte> output, std::span<const std::size_t> receive_bytes);

/// Number r of `to_each` goes to rank r; returns the numbers from all ranks in rank order. Over links O(log n)
/// messages.
std::vector<std::int64_t> exchange_numbers(group::Lane& lane, std::span<const std::int64_t> to_each);

/// Returns when every rank has called it.
void barrier(group::Lane& lane);

/// Bytes of segment per host that a lane needs for `local_size` ranks: control words, the mailboxes through which
/// ordinary buffers pass, and an arena of `arena_bytes` per rank (0 for none), staggered against 4 KB aliasing.
std::size_t segment_bytes_for(int local_size, std::size_t arena_bytes);

}  // namespace gyre::collectives
