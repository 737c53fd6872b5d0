#pragma once

#include <vector>

namespace gyre::collectives {

/// Chunks begin … end - 1 of a buffer.
struct ChunkRange {
  int begin = 0;
  int end = 0;

  int count() const { return end - begin; }
  bool operator==(const ChunkRange&) const = default;
};

/// One step of recursive halving and doubling, seen by one rank. In either direction nothing may flow, which is an
/// empty range.
struct HalvingStep {
  int round;    ///< Number of the step, counted alike on all ranks; a rank may sit a round out.
  int partner;  ///< The rank to exchange with.
  ChunkRange send;
  ChunkRange receive;
  bool reduce;  ///< own = arrived ∘ own, or keep what arrives.

  bool operator==(const HalvingStep&) const = default;
};

/// Chunks into which the buffer is split: the largest power of two that is at most `size`.
int halving_chunks(int size);

/// Allreduce in 2 log2(n) steps that send 2(n-1)/n of the buffer, for n a power of two: first each rank gives away half
/// of what it still sums up, then a quarter, and so on, until it owns the sum of one chunk; then the finished chunks
/// come back the same way. Of other n, the e = n - 2^k ranks too many first hand their whole buffer to a neighbour and
/// get the result last, as in recursive_doubling_steps().
///
/// Every sum of a chunk is made by one rank, in an order fixed by n, and only copied afterwards: all ranks hold the
/// same bits. The owner makes its last sum in the step in which it receives a single chunk to reduce.
///
/// Four ranks, ">c" sends and "<c" receives chunks, "+" where it reduces:
///
///   round    0             1            2           3
///   rank 0   2 >23 <01+    1 >1 <0+     1 >0 <1     2 >01 <23
///   rank 1   3 >23 <01+    0 >0 <1+     0 >1 <0     3 >01 <23
///   rank 2   0 >01 <23+    3 >3 <2+     3 >2 <3     0 >23 <01
///   rank 3   1 >01 <23+    2 >2 <3+     2 >3 <2     1 >23 <01
///
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005. Pure; no I/O; any size >= 1.
std::vector<HalvingStep> halving_doubling_steps(int rank, int size);

/// Rounds in all: the largest `round` of any rank + 1.
int halving_doubling_rounds(int size);

}  // namespace gyre::collectives
