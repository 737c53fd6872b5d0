#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/launch/internal/ended_ranks.h"
#include "gyre/launch/internal/first_failure.h"
#include "gyre/launch/internal/guardian.h"
#include "gyre/launch/internal/job_identity.h"
#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/internal/output.h"
#include "gyre/launch/internal/rank_environment.h"
#include "gyre/launch/internal/rank_process.h"
#include "gyre/launch/internal/report.h"
#include "gyre/launch/internal/signals.h"
#include "gyre/launch/launch.h"

namespace gyre::launch {

/// The inside of launch(): starts the ranks and watches over them in one loop on one thread. Waits for: a rank's end,
/// its output, a signal, a reader who takes our output, or the next point in time at which something is due.
class Supervisor {
 public:
  /// After a failure the other ranks get SIGTERM, and this much later SIGKILL.
  static constexpr std::chrono::milliseconds kTerminationGrace{400};

  /// Makes everything that can fail before a rank is started.
  /// `restarts`: how often the ranks have been started before.
  Supervisor(const LaunchOptions& options, int restarts);

  LaunchResult run();

 private:
  JobEnvironment job_environment();
  void start_ranks();
  void watch_rank(RankProcess& rank);

  void wait_for_events();
  int wait_timeout_ms() const;
  void handle_signals();
  void handle_ended_ranks();
  void note_end(const RankProcess& rank);
  void hear_accounts();
  void read_outputs();
  void check_output();
  void act_on_time();
  void check_lifeline();

  void stop(int signal);
  void suspend();
  void end_other_ranks(const RankFailure& cause);
  void signal_all(int signal) const;
  bool a_rank_is_dying() const;
  std::vector<int> running_ranks() const;

  void kill_leftovers();
  void drain_output();
  void wait_until_written();
  LaunchResult conclude();
  FailureReport report_on(const RankFailure& cause) const;
  std::optional<std::string> log_file(int rank) const;

  LaunchOptions options_;
  int restarts_;
  int first_rank_;  ///< Of the job's ranks, ours begin with this one.
  int size_;        ///< Of the job.
  ReservedPort reserved_port_;
  std::vector<UniqueFd> logs_;
  JobIdentity identity_;
  std::string marker_;
  Output output_;
  SignalSource signals_;
  Guardian guardian_;
  UniqueFd ends_epoll_;     ///< The ranks' pidfds. Reports them in the order in which they became readable.
  UniqueFd outputs_epoll_;  ///< The ranks' pipes.
  std::vector<std::unique_ptr<RankProcess>> ranks_;

  SteadyClock::time_point started_;
  std::optional<std::int64_t> out_of_memory_kills_before_;
  std::size_t running_ = 0;
  EndedRanks ended_ranks_;
  FirstFailure failures_;
  LineSplitter account_lines_{kLongestAccountBytes};
  bool ending_ = false;             ///< A failure is final and the others have been told to end.
  std::vector<int> ended_because_;  ///< Who ran at that moment.
  std::optional<int> stop_signal_;  ///< The first signal that asked us to stop.
  std::vector<int> killed_after_grace_;
  std::optional<SteadyClock::time_point> kill_at_;
  bool stdout_reported_ = false;
};

}  // namespace gyre::launch
