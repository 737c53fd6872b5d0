#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/launch/internal/ended_ranks.h"
#include "gyre/launch/internal/first_failure.h"
#include "gyre/launch/internal/guardian.h"
#include "gyre/launch/internal/job_identity.h"
#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/internal/own_ranks.h"
#include "gyre/launch/internal/rank_environment.h"
#include "gyre/launch/internal/rank_process.h"
#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// The inside of a RankSet, whose contract it has: waits, through one epoll, for a rank's end, its output, and the next
/// point in time at which something is due.
class Supervisor {
 public:
  Supervisor(RankSetOptions options, RankEvents& events);

  void start();
  int fd() const { return everything_.get(); }
  void advance();
  bool finished() const { return stage_ == Stage::kFinished; }
  RankSetResult result() const;

  bool stop(int signal, std::chrono::milliseconds grace);
  void kill();
  void signal_all(int signal) const;
  bool ending() const { return ending_ || stop_signal_.has_value(); }
  void pause_output(bool paused);
  void hear(std::string_view notes) { ended_ranks_.hear(notes); }
  void expect_decision();
  void decide(int rank);
  void lose(int rank);
  const std::string& rendezvous() const { return identity_.rendezvous; }

 private:
  enum class Stage : std::uint8_t {
    kNew,
    kRunning,
    kDraining,  ///< All ranks have ended; some of their output has not been given away.
    kFinished,
  };

  JobEnvironment job_environment();
  SpawnOptions spawn_options(JobEnvironment& job, int index) const;
  void watch_rank(RankProcess& rank);

  void handle_ended_ranks();
  void read_reports();
  /// Where the rank that hosts the job's rendezvous runs: the first server, or rank 0.
  int rendezvous_rank() const { return options_.servers > 0 ? size_ - options_.servers : 0; }
  ExitRecord record_of(const RankProcess& rank, bool asked_to_end) const;
  void read_outputs();
  void act_on_time();
  void decide_or_wait(SteadyClock::time_point now);
  void arm_timer() const;
  std::optional<SteadyClock::time_point> due_at() const;

  void end_other_ranks();
  bool a_rank_is_dying() const;
  std::vector<int> running_ranks() const;
  void kill_leftovers();
  void drain_output();

  RankSetOptions options_;
  RankEvents& events_;
  OwnRanks own_;
  int size_;  ///< Of the job.
  ReservedPort reserved_port_;
  JobIdentity identity_;
  std::string marker_;
  Guardian guardian_;
  UniqueFd ends_epoll_;     ///< The ranks' pidfds. Reports them in the order in which they became readable.
  UniqueFd outputs_epoll_;  ///< The ranks' pipes.
  UniqueFd timer_;
  UniqueFd everything_;  ///< All of these.
  std::vector<std::unique_ptr<RankProcess>> ranks_;

  Stage stage_ = Stage::kNew;
  SteadyClock::time_point started_;
  std::size_t running_ = 0;
  std::vector<std::optional<ExitRecord>> records_;
  EndedRanks ended_ranks_;
  FirstFailure failures_;
  std::set<int> may_be_lost_;                              ///< Ranks whose death is no failure of the job.
  std::vector<int> lost_;                                  ///< Those of them that have failed.
  std::optional<int> decided_;                             ///< The rank that failed first, as decided elsewhere.
  std::optional<SteadyClock::time_point> look_for_dying_;  ///< Next; unset where nobody wants to know.
  bool said_dying_ = false;
  LineSplitter report_lines_{kLongestReportBytes};
  bool paused_ = false;
  bool ending_ = false;             ///< A failure is final and the others have been asked to end.
  std::vector<int> ended_because_;  ///< The ranks that ran at that moment.
  std::optional<int> stop_signal_;  ///< The first signal that stop() was given.
  std::vector<int> killed_after_grace_;
  std::optional<SteadyClock::time_point> kill_at_;
  std::optional<SteadyClock::time_point> drain_until_;
};

}  // namespace gyre::launch
