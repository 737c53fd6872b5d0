#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/join_watch.h"
#include "gyre/engine/internal/open/agreements.h"
#include "gyre/engine/internal/open/executor.h"
#include "gyre/engine/internal/open/negotiation.h"
#include "gyre/engine/internal/plan/plan_registry.h"
#include "gyre/engine/internal/stall/location_finder.h"
#include "gyre/engine/internal/stall/process_waits.h"
#include "gyre/engine/internal/stopwatch.h"
#include "gyre/engine/options.h"
#include "gyre/engine/statistics.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/lane.h"
#include "gyre/net/message.h"
#include "gyre/net/notifier.h"

namespace gyre::engine::internal {

/// The lane of named operations in any order. A submission is announced to the coordinator at once, on the submitter's
/// thread, or among many by this lane's thread, which otherwise sleeps until an order comes and executes it. submit()
/// and the rest are thread-safe.
class OpenLane final : public ProcessWaits::Source {
 public:
  /// `coordinator`: the link to the coordinator; null in a group of one, where operations run on the submitter's
  /// thread.
  OpenLane(group::Group& group, std::unique_ptr<net::Stream> coordinator, int parent_rank, JoinWatch& joins,
           PlanRegistry& plans, const TimelineRows& timeline, const Logger& logger, const EngineOptions& options);
  ~OpenLane() override;

  /// The requests are valid (see validate()). Those of one call are announced in one message.
  std::vector<Handle> submit(std::vector<Request> requests);

  /// From here on this rank takes part in what the others do without contributing, until all have joined. The handle's
  /// result has the shape [last rank to join].
  Handle join(const JoinAnnouncement& join);
  /// This rank has begun a step of a plan while another one had joined. Does not block: the lane's thread sends it.
  void announce_step(const PlanStep& step);
  /// This rank has waited long for the end of a plan's step. Does not block either.
  void report_stall(const StalledStep& stalled);

  /// Reserves a name as if an operation of it were in flight; false when one is. For operations that run elsewhere.
  bool reserve(const std::string& name);
  void release(const std::string& name);
  /// On operations that something else carries out.
  Agreements& agreements() { return agreements_; }
  /// Any thread, any time.
  LaneStatistics statistics() const;
  /// Nothing in flight.
  bool idle();
  /// The calling thread uses this engine; see ProcessWaits. Cheap when it was the last to do so.
  void note_this_thread();
  Report report() override;
  void keep_report(const DeadlockReport& report) override;
  void fail_with_report() override;

  /// Says goodbye (or fails the group with the report of a deadlock that it is part of), fails what is in flight with
  /// kShutDown and ends the thread. Idempotent.
  void shutdown();

 private:
  void run();
  void serve();
  void receive();
  /// What announce_step(), report_stall() and, of a rank that is far ahead, submit() have left.
  void send_notes();
  AnnouncementContent take_notes() GYRE_EXCLUDES(notes_mutex_);
  /// Tells the coordinator where this rank is, if that has been found out.
  void answer_question();
  void execute(const Order& order);
  void execute_bucket(const Bucket& bucket);
  /// Whether ranks disagree about the rows of an all-to-all; its operation is in flight again then, until the
  /// coordinator refuses it.
  bool dispute(Pending& pending);
  std::vector<Pending> take(const Bucket& bucket);
  Pending take_one(const OrderedOperation& operation) GYRE_REQUIRES(mutex_);
  void refuse(const std::vector<Refusal>& refusals);
  void finish_join(int last_rank);
  /// After each change of what is in flight: that waits for other ranks, unless the lane carries something out.
  void time_the_wait() GYRE_REQUIRES(mutex_);
  void say_goodbye() GYRE_REQUIRES(mutex_);
  /// After all that is unsent.
  void send(AnnouncementContent content) GYRE_REQUIRES(mutex_);
  void run_alone() GYRE_REQUIRES(mutex_);
  void begin_negotiation(const Request& request);
  void end_negotiation(const Request& request);
  void fail_all(const Error& failure) GYRE_EXCLUDES(mutex_);
  /// Tells the group; returns the reason that all ranks share.
  Error abort_group(const std::exception& cause);
  std::optional<DeadlockReport> kept_report() GYRE_EXCLUDES(mutex_);

  group::Group& group_;
  const TimelineRows& timeline_;
  group::Lane lane_;
  Executor executor_;
  const std::unique_ptr<net::Stream> coordinator_;
  const int parent_rank_;  // At the other end of this stream.
  JoinWatch& joins_;
  PlanRegistry& plans_;
  const std::shared_ptr<ProcessWaits> waits_;
  std::atomic<std::uint64_t> last_user_{0};  // thread_serial() of the last that was noted.
  std::atomic<std::uint64_t> engine_ = 0;    // How all ranks call this engine; 0 before the first order.
  net::Notifier stop_;
  net::Notifier has_notes_;
  net::MessageParser parser_;  // The thread's.
  OrderDecoder decoder_;       // The thread's.
  LocationFinder finder_;      // The thread's.
  const bool only_known_threads_;
  Agreements agreements_;

  Mutex notes_mutex_;
  AnnouncementContent notes_ GYRE_GUARDED_BY(notes_mutex_);

  mutable Mutex mutex_;
  AnnouncementEncoder encoder_ GYRE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Pending> in_flight_ GYRE_GUARDED_BY(mutex_);
  std::unordered_set<std::string> reserved_ GYRE_GUARDED_BY(mutex_);
  bool executes_ GYRE_GUARDED_BY(mutex_) = false;  // A bucket.
  Stopwatch awaited_ GYRE_GUARDED_BY(mutex_);
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  bool stopping_ GYRE_GUARDED_BY(mutex_) = false;
  std::optional<DeadlockReport> deadlock_ GYRE_GUARDED_BY(mutex_);  // This engine is part of it.
  std::uint64_t submissions_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<Announced> unsent_ GYRE_GUARDED_BY(mutex_);  // Submitted and not announced.
  std::thread thread_;
};

}  // namespace gyre::engine::internal
