#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/stall/rank_state.h"
#include "gyre/engine/options.h"

namespace gyre::engine::internal {

/// Which threads of this process use Gyre and what each of them waits for, over all of the process's engines: a cycle
/// of waits may lead through several process groups. Thread-safe.
class ProcessWaits {
 public:
  /// An engine of the process.
  class Source {
   public:
    struct Report {
      std::vector<std::pair<ThreadIdentity, Awaited>> waits;
      std::vector<std::pair<ThreadIdentity, PlanStep>> owed;  ///< And the thread that owes it; none: not known.
      EngineState state;
    };
    virtual ~Source() = default;
    virtual Report report() = 0;
    /// Unless it is none of the report's engines. See ProcessWaits::keep_report.
    virtual void keep_report(const DeadlockReport& report) = 0;
    /// Fails its group with the report that it keeps, if any. Returns when the others of the group have that reason, or
    /// cannot be reached.
    virtual void fail_with_report() = 0;
  };

  /// `program_threads`: see make_process_waits; may be empty.
  explicit ProcessWaits(std::function<std::vector<ProgramThread>()> program_threads)
      : program_threads_(std::move(program_threads)) {}
  const std::function<std::vector<ProgramThread>()>& program_threads() const { return program_threads_; }

  void add(Source* source);
  /// When it returns, nobody uses the source any more.
  void remove(Source* source);

  /// The calling thread uses an engine: as long as it lives, it may submit what others wait for.
  void note_this_thread();

  /// While the result lives, what the calling thread does counts as done by `principal`.
  std::shared_ptr<void> act_for(const ThreadIdentity& principal);

  /// For `asking`, whose own operations are left out. `program_threads` are what their function has just returned;
  /// null: no thread that is not known here can bring anything.
  RankState look(const Source* asking, const std::vector<ProgramThread>* program_threads);

  /// Ranks wait in a circle through several engines. When one of these fails, those who waited in it go on, and leave
  /// the others, where the rest of the circle waits and must hear of the circle, not of ranks that left. So all
  /// processes keep the report before the first engine fails; from then on an engine that keeps it is failed with it
  /// where it would be left.
  void keep_report(const DeadlockReport& report);
  /// `failed` has failed with the report: so do all others of this process that keep it.
  void fail_with_report(const Source* failed);

 private:
  ThreadIdentity principal_of(const ThreadIdentity& thread) const GYRE_REQUIRES(mutex_);
  void forget_ended_threads() GYRE_REQUIRES(mutex_);

  const std::function<std::vector<ProgramThread>()> program_threads_;
  Mutex mutex_;
  std::vector<Source*> sources_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::pair<std::thread::id, pid_t>> users_ GYRE_GUARDED_BY(mutex_);  // In the order of their first use.
  std::map<std::thread::id, ThreadIdentity> principals_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::engine::internal
