#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyre/engine/internal/stall/rank_state.h"

namespace gyre::engine::internal {

/// What an operation of the engine that asks still needs.
struct IncompleteOperation {
  std::string name;
  std::uint64_t serial = 0;  ///< That of an Awaited which means this use of the name, and not an earlier one.
  std::vector<int> missing_ranks;
};

/// A rank whose thread waits for something that the rank of the next wait in the cycle has to bring, and cannot.
struct CycleOfWaits {
  struct Wait {
    int rank = 0;  ///< One of `ranks`.
    Awaited awaited;
    std::vector<int> ranks;         ///< All that wait for it and can never go on.
    std::vector<int> needed_ranks;  ///< Those of them that have to bring something to it and cannot.

    friend bool operator==(const Wait&, const Wait&) = default;
  };
  std::vector<Wait> waits;
  /// Whether it leads through engines other than the one that asks. What ranks say of those is of different moments:
  /// only if they say the same again is it proof.
  bool needs_confirmation = false;

  friend bool operator==(const CycleOfWaits&, const CycleOfWaits&) = default;
};

/// What is assumed of threads of which nothing is known.
enum class Assumption {
  /// Whatever runs may bring anything: what is found is a proof.
  kNothing,
  /// Threads that have never used Gyre never will, and the thread that owes a step its gradients is the one that
  /// brought
  /// the last: true in most programs, but not in all.
  kUsualProgram,
};

/// Ranks that can never go on, or nothing. `states` by rank; a rank that has not answered may still do anything.
/// `engine` and `incomplete` are those of the coordinator that has asked, as they are when all answers are in.
///
/// A thread is stuck when everything that it waits for needs a stuck thread (or a rank whose threads are all stuck).
/// The largest set of threads of which that is true is what remains when those of which it is not are taken away, again
/// and again. Pure.
std::optional<CycleOfWaits> find_deadlock(const std::vector<std::optional<RankState>>& states, std::uint64_t engine,
                                          const std::vector<IncompleteOperation>& incomplete, Assumption assumption);

}  // namespace gyre::engine::internal
