#pragma once

#include <bit>

namespace gyre::collectives {

/// How schedules for powers of two serve other numbers of ranks: the ranks 0 … 2e-1 (e ranks too many) fold in pairs,
/// of which the odd one sits out. The ranks that take part are numbered 0 … core - 1, in rank order.
struct Fold {
  explicit Fold(int size) : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), excess(size - core) {}

  bool in_pair(int rank) const { return rank < 2 * excess; }
  bool sits_out(int rank) const { return in_pair(rank) && rank % 2 == 1; }
  int number_of(int rank) const { return in_pair(rank) ? rank / 2 : rank - excess; }
  int rank_of(int number) const { return number < excess ? 2 * number : number + excess; }
  /// log2(core)
  int doublings() const { return std::countr_zero(static_cast<unsigned>(core)); }

  int core;
  int excess;
};

}  // namespace gyre::collectives
