#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/slurm/internal/commands.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::drivers::slurm {

/// What became of an attempt's job in Slurm.
struct Sighting {
  enum class Kind {
    kSubmitted,    ///< Slurm has it; `text`: its id.
    kRefused,      ///< Slurm will not have it; `text`: its words.
    kUnreachable,  ///< Slurm cannot be asked; it is tried again. `text`: what it said. Once per outage.
    kWaits,        ///< `text`: Slurm's reason. When it changes.
    kRuns,         ///< `text`: on which nodes.
    kOver,         ///< Nothing of it runs any more; `text`: its last state, such as "CANCELLED".
    kGone,         ///< It was to be forgotten, and is over.
  };
  Kind kind = Kind::kOver;
  std::string attempt;
  std::string text;
  std::string comment = {};  ///< Of kOver: of the job.
};

/// A job that is to be in Slurm.
struct QueuedJob {
  std::string attempt;
  std::string name;                    ///< By which it is found again.
  std::vector<std::string> arguments;  ///< Of sbatch.
  std::string id = {};                 ///< Of Slurm; empty: not known, if it has one.
  bool may_exist = false;              ///< A service before us may have submitted it.
};

/// The jobs of one service in Slurm. A thread of its own asks and commands Slurm, one command at a time, so that
/// callers never wait for it. Thread-safe.
class Queue {
 public:
  Queue(Commands commands, std::chrono::milliseconds poll, Logger logger);
  /// Leaves the jobs as they are.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void submit(const QueuedJob& job);
  /// Ends the job, or sees to it that it is never submitted. A sighting tells when it is over.
  void cancel(const std::string& attempt);
  /// Its job is about to end, and is cancelled when it does not.
  void forget(const std::string& attempt);

  std::vector<Sighting> take();
  /// Readable while take() would return something.
  int fd() const { return seen_notifier_.fd(); }

 private:
  using Time = SteadyClock::time_point;

  enum class Wish { kRun, kForget, kCancel };
  struct Entry {
    QueuedJob job;
    Wish wish = Wish::kRun;
    bool forget = false;
    std::string id;
    std::string told;  ///< The last state and reason.
    bool over = false;
    bool outage_told = false;
    Time cancel_after{};
    Time cancelled{};
  };

  void run();
  void turn();
  void take_wishes() GYRE_REQUIRES(mutex_);
  void look_at(Entry& entry, const std::vector<ListedJob>& list, Time now);
  void look_for(Entry& entry, const std::vector<ListedJob>& list);
  void submit_now(Entry& entry);
  /// Of jobs of that name one is kept.
  void end_doubles(Entry& entry, const std::vector<ListedJob>& list);
  void end(Entry& entry, const std::string& state, const std::string& comment = "");
  void tell(Sighting::Kind kind, const std::string& attempt, const std::string& text, const std::string& comment = "");
  void tell_unreachable(const std::string& what);

  const Commands commands_;
  const std::chrono::milliseconds poll_;
  const Logger logger_;
  net::Notifier wake_;
  net::Notifier seen_notifier_;
  Mutex mutex_;
  std::vector<QueuedJob> new_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, Wish> wishes_ GYRE_GUARDED_BY(mutex_);
  std::vector<Sighting> seen_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, Entry> entries_;  // The thread's own, as what follows.
  bool unreachable_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gyre::jobs::drivers::slurm
