#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/engine/internal/open/coordinator.h"
#include "gyre/engine/internal/open/negotiation.h"
#include "gyre/engine/internal/open/negotiation_link.h"
#include "gyre/engine/internal/stall/deadlock.h"
#include "gyre/engine/internal/stall/stall_inquiry.h"
#include "gyre/engine/options.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/group.h"
#include "gyre/net/message.h"
#include "gyre/net/notifier.h"

namespace gyre::engine::internal {

/// Rank 0's other half: reads the announcements of all ranks (its own included) from the negotiation links of its
/// children, lets the Coordinator decide, and sends every rank the same orders. One thread, asleep in poll(2) while
/// nothing is said.
class CoordinatorService {
 public:
  /// `children` speak for all ranks; one of them is rank 0's own open lane.
  CoordinatorService(group::Group& group, std::vector<NegotiationChild> children, const EngineOptions& options,
                     const TimelineRows& timeline, Logger logger);
  /// Ends the thread: operations that wait fail on the ranks that are still there.
  ~CoordinatorService();

 private:
  void run();
  void serve();
  void note_stalled(StalledStep stalled);
  void receive_from(NegotiationChild& child);
  void take_announcement(NegotiationChild& child, const net::Message& message);
  /// Joins, goodbyes, answers.
  void take_note(int rank, RankNote note);
  void send_orders();
  /// Sends what waited for the answers to the question where all ranks are.
  void refuse_with_places(std::vector<Refusal> refusals);
  void complete(Refusal& refusal) const;
  void send_to_all(const Order& order);
  int poll_timeout_ms() const;
  /// Asks all ranks where they are when something has waited too long, and reports it when they have answered.
  void look_into_stalls();
  bool stall_is_due(SteadyClock::time_point now) const;
  void ask_ranks();
  void report_stalls();
  bool deserves_report(const StalledStep& stalled) const;
  /// When to look whether what waits can come at all; nothing while nothing does.
  std::optional<SteadyClock::time_point> deadlock_look_at() const;
  /// True when it ends the job, because ranks wait for each other in a circle.
  bool end_deadlock();
  void end_job(const CycleOfWaits& cycle);
  /// Once of each: ranks that wait for each other unless a thread of which too little is known brings something.
  void warn_of(std::optional<CycleOfWaits> likely);
  std::string describe_running(const CycleOfWaits& cycle) const;
  std::string describe_waits(const CycleOfWaits& cycle) const;
  std::string describe(const CycleOfWaits& cycle) const;
  std::string describe_places(const std::vector<int>& ranks) const;
  /// True when it has ended the job.
  bool report_stalled_steps();
  void fail_stalled(const std::string& text);
  std::string describe(const Stall& stall) const;
  std::string describe(const StalledStep& stalled, const std::vector<int>& waiting) const;
  std::string describe_waiting(const std::vector<int>& ranks) const;
  std::vector<int> names_of(const std::vector<int>& ranks) const;

  group::Group& group_;
  const EngineOptions options_;
  const TimelineRows& timeline_;
  const Logger logger_;
  net::Notifier stop_;

  // The thread's.
  std::vector<NegotiationChild> children_;
  std::vector<bool> leaving_;  // By rank.
  Coordinator coordinator_;
  OrderEncoder encoder_;
  SteadyClock::time_point last_stall_report_{};
  StallInquiry inquiry_;
  std::vector<Refusal> disputed_;  // Of operations about which ranks disagree: not asked yet where these are,
  std::vector<Refusal> asked_;     // and asked.
  std::map<std::uint64_t, StalledStep> stalled_steps_;   // By plan; not yet looked into,
  std::map<std::uint64_t, StalledStep> checked_steps_;   // the last that was,
  std::map<std::uint64_t, StalledStep> reported_steps_;  // and the last that was reported.
  const std::uint64_t engine_;                           // See Order::engine.
  SteadyClock::time_point looked_at_wait_{};             // The wait since then has been looked into,
  SteadyClock::time_point looked_at_{};                  // at this time, for a deadlock,
  std::optional<CycleOfWaits> suspected_;                // and this was found, which is to be confirmed.
  std::optional<CycleOfWaits> likely_;                   // What the last look found likely,
  std::optional<CycleOfWaits> warned_;                   // and what was warned of last.
  std::optional<DeadlockReport> proven_;                 // It was; all ranks are asked to keep this report.

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gyre::engine::internal
