#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/node_engine.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::drivers {

/// What became of an attempt's request.
struct Sighting {
  enum class Kind {
    kSubmitted,    ///< The engine has it; `text`: its id.
    kRefused,      ///< The engine will not have it; `text`: its words.
    kUnreachable,  ///< The engine does not answer; it is asked again. `text`: what it said. Once per outage.
    kWaits,        ///< `text`: the engine's reason. When it changes.
    kRuns,         ///< `text`: on which nodes.
    kOver,         ///< Nothing of it runs any more; `text`: the engine's word for its end, such as "CANCELLED".
    kGone,         ///< It was to be forgotten, and is over.
  };
  enum class End { kLost, kCanceled, kUnknown };  ///< As Holding's; or the engine does not know it any more.
  Kind kind = Kind::kOver;
  std::string attempt;
  std::string text;
  End end = End::kUnknown;      ///< Of kOver, as
  std::string last_words = {};  ///< this.
};

/// A request that is to be with the engine.
struct QueuedRequest {
  NodeRequest request;
  std::string id = {};     ///< Of the engine; empty: not known, if it has one.
  bool may_exist = false;  ///< A service before us may have asked already.

  const std::string& attempt() const { return request.order.attempt; }
};

/// The requests of one service. A thread of its own calls the engine, one call at a time, so that others never wait for
/// it. However many requests there are, and whatever happens to them, the engine is asked for its list at most once per
/// interval, and only while it has something of ours. Thread-safe.
class EngineQueue {
 public:
  struct Pauses {
    std::chrono::milliseconds poll;    ///< Between the end of one listing and the next.
    std::chrono::milliseconds outage;  ///< The same, where the engine has not answered.
  };

  EngineQueue(std::shared_ptr<NodeEngine> engine, Pauses pauses, Logger logger);
  /// Leaves the requests as they are.
  ~EngineQueue();
  EngineQueue(const EngineQueue&) = delete;
  EngineQueue& operator=(const EngineQueue&) = delete;

  void submit(QueuedRequest request);
  /// Has the nodes released, or sees to it that they are never asked for. A sighting tells when it is over.
  void cancel(const std::string& attempt);
  /// It is about to end, and is released when it does not.
  void forget(const std::string& attempt);

  std::vector<Sighting> take();
  /// Readable while take() would return something.
  int fd() const { return seen_notifier_.fd(); }

 private:
  using Time = SteadyClock::time_point;

  enum class Wish { kRun, kForget, kCancel };
  struct Entry {
    QueuedRequest job;
    Wish wish = Wish::kRun;
    bool forget = false;
    std::string id;
    std::optional<Holding::State> told;  ///< The last state,
    std::string told_reason;             ///< and why it waits.
    bool over = false;
    bool outage_told = false;
    Time cancel_after{};
    Time cancelled{};
  };

  void run();
  void turn();
  void take_wishes() GYRE_REQUIRES(mutex_);
  bool wants_list() const;
  void look_at(Entry& entry, const std::vector<Holding>& list);
  void look_for(Entry& entry, const std::vector<Holding>& list);
  void ask_now(Entry& entry);
  void release_unwanted(Entry& entry);
  /// Of those with that name one is kept.
  void end_doubles(Entry& entry, const std::vector<Holding>& list);
  void tell_state(Entry& entry, const Holding& holding);
  void end(Entry& entry, Sighting::End how, const std::string& text, const std::string& last_words = "");
  void tell(Sighting sighting);
  void tell_unreachable(const std::string& what);

  const std::shared_ptr<NodeEngine> engine_;
  const Pauses pauses_;
  const Logger logger_;
  net::Notifier wake_;
  net::Notifier seen_notifier_;
  Mutex mutex_;
  std::vector<QueuedRequest> new_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, Wish> wishes_ GYRE_GUARDED_BY(mutex_);
  std::vector<Sighting> seen_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, Entry> entries_;  // The thread's own, as what follows.
  Time next_list_{};
  bool unreachable_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gyre::jobs::drivers
