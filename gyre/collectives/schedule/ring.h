#pragma once

#include <vector>

namespace gyre::collectives {

/// One step of a ring collective, seen by one rank. Chunks are indices into a split of the buffer into
/// `size` chunks (schedule/chunks.h); rank r owns chunk r. In every step a rank sends to the next rank
/// and receives from the previous one at the same time.
struct RingStep {
  int send_chunk;     ///< Goes to rank + 1 (mod size).
  int receive_chunk;  ///< Comes from rank - 1 (mod size).
  bool reduce;        ///< own = arrived ∘ own (first phase), or keep what arrives (second phase).

  bool operator==(const RingStep&) const = default;
};

/// The 2(n-1) steps of a ring-allreduce for `rank` of `size` ranks: reduce-scatter, then allgather.
/// Every rank sends and receives n-1 chunks in each phase: 2(n-1)/n of the buffer in all.
///
/// Chunk c sets out from rank c+1 and ends at its owner, rank c, so it is summed in the order
/// ((c+1 ∘ c+2) ∘ … ) ∘ c (mod n): fixed by n, not the order of the ranks and not the same for every
/// chunk. Only the owner computes the last sum (and scales it, once); the second phase copies it, so
/// all ranks hold identical bits.
///
/// Four ranks, "send/receive", + where it reduces:
///
///   step     0      1      2      3     4     5
///   rank 0   3/2+   2/1+   1/0+   0/3   3/2   2/1
///   rank 1   0/3+   3/2+   2/1+   1/0   0/3   3/2
///   rank 2   1/0+   0/3+   3/2+   2/1   1/0   0/3
///   rank 3   2/1+   1/0+   0/3+   3/2   2/1   1/0
///
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009. Pure; no I/O; any size >= 1 (one rank: no steps).
std::vector<RingStep> ring_allreduce_steps(int rank, int size);

/// The first phase alone: after its n-1 steps rank r holds the reduced chunk r.
std::vector<RingStep> ring_reduce_scatter_steps(int rank, int size);

/// The second phase alone: rank r starts with chunk r; after its n-1 steps everybody has all chunks.
std::vector<RingStep> ring_allgather_steps(int rank, int size);

}  // namespace gyre::collectives
