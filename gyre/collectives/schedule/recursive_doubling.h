#pragma once

#include <vector>

namespace gyre::collectives {

/// What a rank does with the buffer that arrives in a step.
enum class Combine {
  kNothing,       ///< Nothing arrives.
  kReplace,       ///< own = arrived.
  kOwnFirst,      ///< own = own ∘ arrived.
  kArrivedFirst,  ///< own = arrived ∘ own.
};

/// One step of recursive doubling, seen by one rank: it sends its whole buffer to `partner`, receives
/// the partner's, or both at the same time.
struct DoublingStep {
  int round;    ///< Number of the step, counted alike on all ranks; a rank may sit a round out.
  int partner;  ///< The rank to exchange with.
  bool send;
  Combine combine;  ///< kNothing when this rank only sends.

  bool receive() const { return combine != Combine::kNothing; }
  bool operator==(const DoublingStep&) const = default;
};

/// Allreduce of a small buffer in log2(n) exchanges, plus two where n is not a power of two: the
/// 2e ranks 0 … 2e-1 (e = n - 2^k ranks too many) first fold in pairs, rank 2i taking in rank 2i+1, and unfold
/// last, rank 2i handing the result back.
///
/// Guarantee: every exchange joins two neighbouring runs of ranks, and both sides put the lower run
/// first. So all ranks evaluate the same expression, with operands in rank order and brackets fixed
/// by n, and end with identical bits, whether or not ∘ is commutative or associative.
/// Four ranks: (0 ∘ 1) ∘ (2 ∘ 3). Five: ((0 ∘ 1) ∘ 2) ∘ (3 ∘ 4).
/// Every rank that computes the last sum may scale it: all compute the same.
///
/// Five ranks, ">p" sends to p, "<p" receives from p, "=p" both; a own first, b arrived first, r replace:
///
///   round    0     1     2     3
///   rank 0   <1a   =2a   =3a   >1
///   rank 1   >0                <0r
///   rank 2         =0b   =4a
///   rank 3         =4a   =0b
///   rank 4         =3b   =2b
///
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005. Pure; no I/O; any size >= 1.
std::vector<DoublingStep> recursive_doubling_steps(int rank, int size);

/// Rounds in all: the largest `round` of any rank + 1.
int recursive_doubling_rounds(int size);

}  // namespace gyre::collectives
