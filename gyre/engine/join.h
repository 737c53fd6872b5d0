#pragma once

#include <chrono>

namespace gyre::engine {

/// How a rank that has run out of data takes part in the other ranks' operations; see Engine::begin_join.
struct JoinOptions {
  /// Take part in every operation: with no rows in allgather and all-to-all (rows sent to it are dropped), with
  /// nothing in reduce-scatter, as a receiver in broadcast. Otherwise all but allreduce and barrier fail with
  /// kUnsupported on the ranks that call them, as Horovod's do.
  bool every_operation = false;
  /// Averages of allreduce and reduce-scatter are over the ranks that have not joined, instead of over all, if any
  /// rank that has joined asks for it. Not for plans, whose average is over all ranks; to correct it, add a tensor that
  /// counts the contributors.
  bool divide_by_contributors = false;
};

/// A rank's stay until all have joined. Used by one thread; keep the engine longer.
class Join {
 public:
  virtual ~Join() = default;

  /// Takes part in the steps of plans that the others make (with zeros) while it waits. True when all ranks have
  /// joined; false when `patience` passed first. Throws what made it fail: kPeerLeft when a rank shut down without
  /// joining.
  virtual bool wait_for(std::chrono::milliseconds patience) = 0;
  /// After wait_for() returned true: the rank that joined last, the same on all ranks.
  virtual int last_rank() const = 0;
};

}  // namespace gyre::engine
