#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/launch/console.h"
#include "gyre/launch/internal/hosts/agent_words.h"
#include "gyre/launch/internal/input_relay.h"
#include "gyre/launch/internal/job_metrics.h"
#include "gyre/launch/internal/metrics_intake.h"
#include "gyre/launch/internal/output.h"
#include "gyre/launch/internal/own_ranks.h"
#include "gyre/launch/internal/rank_output.h"
#include "gyre/launch/internal/report.h"
#include "gyre/launch/internal/signals.h"

namespace gyre::launch {

/// One start of all ranks by run_on_console(). Waits, on one thread, for the RankSet, a signal, the lifeline, input for
/// a rank, and a reader who takes our output.
class ConsoleRun : private RankEvents {
 public:
  /// Makes everything that can fail before a rank is started.
  /// `restarts`: how often the ranks have been started before.
  /// `metrics`: what keeps those of all restarts; may be null.
  ConsoleRun(const LaunchOptions& options, int restarts, JobMetrics* metrics);

  LaunchResult run();

 private:
  void started(int rank, pid_t process) override;
  void output(int rank, Stream stream, std::string_view bytes) override;
  void ended(const ExitRecord& record) override;
  void lost(const ExitRecord& record) override;
  void note_for_other_hosts(const std::string& line) override;
  void report(const std::string& line) override;
  void dying(bool now) override;
  bool awaits_words() override;

  /// Whether `gyre run -H` has started us on this host. It knows what happens on all hosts, decides and tells.
  bool is_agent() const { return agent_; }
  void obey(const ToAgent& words);
  void tell(const FromAgent& words);
  void tell_end(const RankSetResult& result);
  void wait_for_decision();

  RankSetOptions rank_set_options(int restarts) const;
  void wait_for_events();
  void handle_signals();
  void check_lifeline();
  void serve_input();
  std::optional<MetricsIntake> make_intake(JobMetrics* file);
  void take_metrics();
  /// Shows tracebacks that have waited for long in a job that goes on.
  void release_tracebacks();
  std::optional<SteadyClock::time_point> due_at() const;
  void stop(int signal);
  void suspend();
  LaunchResult conclude();
  void show_tracebacks(const RankSetResult& result);
  std::vector<WatchdogWords> watchdog_words() const;
  /// Whose end the report is about: that of the cause, but where a watchdog ended it because of a rank of ours, of
  /// that.
  const ExitRecord& subject_of(const ExitRecord& cause, const RankSetResult& result) const;
  FailureReport report_on(const ExitRecord& cause, const RankSetResult& result) const;
  std::optional<std::string> log_file(int rank) const;
  RankOutput& output_of(int rank) { return outputs_[own_.index_of(rank)]; }

  LaunchOptions options_;
  int restarts_;
  bool agent_;
  OwnRanks own_;
  int size_;            ///< Of the job.
  int earlier_logs_;    ///< The number that logs of an earlier job have got; 0 where there were none.
  std::string folder_;  ///< Where we are, with a slash.
  std::vector<RankOutput> outputs_;
  Output output_;
  SignalSource signals_;
  std::optional<std::int64_t> out_of_memory_kills_before_;
  const std::int64_t cgroup_kills_before_;
  std::optional<int> input_rank_;
  std::optional<InputRelay> input_;
  JobMetrics* metrics_;
  std::optional<MetricsIntake> intake_;  ///< Where somebody wants metrics.
  RankSet ranks_;
  std::set<int> failed_;  ///< Ranks whose failure may end the job.
  std::set<int> ended_;   ///< Of our ranks, however they did.
  bool decided_ = false;  ///< Which rank of the job failed first; for agents.
  LineSplitter lifeline_lines_;
  std::optional<int> stop_signal_;  ///< The first signal that asked us to stop.
};

}  // namespace gyre::launch
