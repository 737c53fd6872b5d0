#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyre/engine/internal/open/order.h"

// What a rank tells of its threads when it is asked, out of which a deadlock can be proven.

namespace gyre::engine::internal {

/// Something that a thread waits for: an operation, or the end of a plan's step.
struct Awaited {
  std::uint64_t engine = 0;        ///< Whose; see Order::engine.
  std::string operation;           ///< Its name; empty of a step.
  std::optional<PlanStep> step{};  ///< The step; nothing of an operation.
  std::uint64_t serial = 0;        ///< Tells the uses of an operation's name apart.
  std::string description{};       ///< "allreduce 'loss'", "the end of step 3 of gradient exchange 'optimizer.1'".

  friend bool operator==(const Awaited&, const Awaited&) = default;
};

/// One that uses Gyre. It can do nothing else before all that it waits for is done; empty: it runs.
struct ThreadState {
  std::vector<Awaited> waits;

  friend bool operator==(const ThreadState&, const ThreadState&) = default;
};

/// A step under way to which this rank has not brought all gradients.
struct OwedStep {
  static constexpr int kAnyThread = -1;

  std::uint64_t engine = 0;
  PlanStep step;
  int thread = kAnyThread;  ///< That has brought them so far: its place in RankState::threads.

  friend bool operator==(const OwedStep&, const OwedStep&) = default;
};

/// An engine of which this rank is a member.
struct EngineState {
  /// When more are in flight, nothing can be said of this engine's operations.
  static constexpr std::size_t kMostOperations = 1024;

  std::uint64_t engine = 0;
  bool joined = false;   ///< It takes part in whatever the others do.
  bool complete = true;  ///< `operations` are all that are in flight.
  std::vector<std::string> operations;

  friend bool operator==(const EngineState&, const EngineState&) = default;
};

struct RankState {
  std::vector<ThreadState> threads;  ///< All that have used Gyre and live.
  std::vector<OwedStep> owed{};
  std::vector<EngineState> engines{};  ///< All of the process but the one that asks, which knows better.
  /// Threads that have never used Gyre and may still do so, in words; at most kMostStrangers.
  std::vector<std::string> strangers{};

  static constexpr std::size_t kMostStrangers = 4;

  friend bool operator==(const RankState&, const RankState&) = default;
};

}  // namespace gyre::engine::internal
