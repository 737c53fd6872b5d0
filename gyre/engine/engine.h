#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/base/thread.h"
#include "gyre/engine/handle.h"
#include "gyre/engine/join.h"
#include "gyre/engine/options.h"
#include "gyre/engine/plan.h"
#include "gyre/engine/request.h"
#include "gyre/engine/statistics.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/group.h"

namespace gyre::engine {

/// One process's tensor queue and its progress threads. Operations are named; ranks may submit them in any order; the
/// coordinator (rank 0) orders the operations that every rank has announced and fuses neighbours. Nothing runs on a
/// timer: an idle engine sleeps. All methods are thread-safe.
///
/// When a rank dies, the protocol is broken or abort() is called, every handle in flight fails with the same reason,
/// once, and every later submission fails with it too; the engine can then only be shut down.
class Engine {
 public:
  /// Every rank of the group makes one. The group must outlive it. Of a process set, `timeline` says where its rows
  /// go (see timeline_of_process_set); every other engine has a timeline of its own.
  Engine(group::Group& group, EngineOptions options, Logger logger, std::optional<TimelineRows> timeline = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues an operation. Throws Error(kInvalidArgument) for mistakes of this rank alone (sizes, splits, root, a
  /// name that is in flight already); disagreement between ranks comes through the handle as Error(kMismatch), on every
  /// rank, with one message that shows both sides.
  Handle submit(Request request);

  /// Submits several operations that complete together: none starts before all are announced on every rank. Where ranks
  /// disagree about one, all fail, and when the first handle says so all names are free again.
  std::vector<Handle> submit_group(std::vector<Request> requests);

  /// submit() and wait(), on the caller's thread where the ranks meet within microseconds and share a host.
  Result run(Request request);

  /// run() for callers that cannot sleep in it (a Python thread looks up for signals): done already where the ranks met
  /// at once, submitted otherwise.
  Handle run_or_submit(Request request);

  /// Of operations that something else carries out (Signature::elsewhere): waits until more than `count` have been
  /// agreed on, for at most `patience`. How many have been, whose handles are done; nothing once a rank has left in
  /// good order. Throws what has made the engine fail.
  std::optional<std::uint64_t> wait_for_agreements(std::uint64_t count, std::chrono::milliseconds patience);

  /// Collective: throws Error(kMismatch), with both sides of the first difference, unless every rank would make the
  /// same plan. For callers that make it later, when they know the order in which the tensors come.
  void check_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options);

  /// This rank has run out of data: until all ranks have said so, the others' operations go on with a contribution from
  /// it that changes nothing (zeros to a sum), given by the engine's own threads; steps of plans go on inside
  /// Join::wait_for. Only one Join at a time. Error(kInvalidArgument) in the middle of a plan's step.
  std::unique_ptr<Join> begin_join(const JoinOptions& options = {});
  /// The same, until all have joined; returns the rank that joined last.
  int join(const JoinOptions& options = {});

  /// Collective: every rank makes the same plan. Error(kMismatch) shows both sides of the first difference. Threads may
  /// make plans of different names in any order.
  std::unique_ptr<Plan> make_plan(std::vector<PlanTensor> tensors, const PlanOptions& options);

  /// 1, 2, …: for the names of an exchange's plan and operations, which agree between ranks that make their exchanges
  /// in the same order.
  std::uint64_t next_exchange();

  /// Finishes nothing: operations in flight fail with kShutDown. Other ranks' operations that need this rank fail with
  /// kPeerLeft. Idempotent; the destructor calls it. Plans may outlive shutdown(), not the engine: their calls fail
  /// with kShutDown then, and the memory of their tensors stays until they are destroyed (the caller may hold a
  /// gradient).
  void shutdown();

  /// Rank 0 writes `path`, or each rank if it has a kRankMark. Error(kInvalidArgument) in a process set: see the job's.
  void start_timeline(const std::filesystem::path& path, bool mark_cycles);
  void stop_timeline();
  /// Whether this rank writes a timeline now.
  bool timeline_runs() const;
  /// Adds a phase other than an operation to the timeline, in the row of this name, if the timeline runs.
  void add_to_timeline(std::string_view row, const PastPhase& phase);
  /// The rows of a process set of these ranks, while this engine's timeline runs.
  TimelineRows timeline_of_process_set(std::string_view name) const;

  /// The calling thread uses this engine: as long as it runs it may bring what other ranks wait for, so that they are
  /// not in a deadlock. Implied for threads that make an engine or submit to it.
  void note_this_thread();
  /// While the result lives, what the calling thread does here counts as done by `caller`, which waits for it: for
  /// those who wait on a thread of their own, so that a signal can end the wait. Not longer than this engine.
  std::shared_ptr<void> act_for(const ThreadIdentity& caller);

  /// The counters of this rank so far, without plans that have been destroyed. Any thread, any time.
  EngineStatistics statistics() const;

  group::Group& group();
  const EngineOptions& options() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace gyre::engine
