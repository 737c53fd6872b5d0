#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/stall/rank_state.h"

namespace gyre::engine::internal {

/// Which threads of this process use Gyre and what each of them waits for, over all of the process's engines: a cycle
/// of waits may lead through several process groups. Thread-safe.
class ProcessWaits {
 public:
  /// An engine of the process.
  class Source {
   public:
    struct Report {
      std::vector<std::pair<std::thread::id, Awaited>> waits;
      std::vector<std::pair<std::thread::id, PlanStep>> owed;  ///< And the thread that owes it; none: not known.
      EngineState state;
    };
    virtual ~Source() = default;
    virtual Report report() = 0;
  };

  void add(Source* source);
  /// When it returns, nobody uses the source any more.
  void remove(Source* source);

  /// The calling thread uses an engine: as long as it lives, it may submit what others wait for.
  void note_this_thread();

  /// While the result lives, what the calling thread does counts as done by `principal`.
  std::shared_ptr<void> act_for(std::thread::id principal);

  /// For `asking`, whose own operations are left out.
  RankState look(const Source* asking);

 private:
  std::thread::id principal_of(std::thread::id thread) const GYRE_REQUIRES(mutex_);
  void forget_ended_threads() GYRE_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Source*> sources_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::pair<std::thread::id, pid_t>> users_ GYRE_GUARDED_BY(mutex_);  // In the order of their first use.
  std::map<std::thread::id, std::thread::id> principals_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::engine::internal
