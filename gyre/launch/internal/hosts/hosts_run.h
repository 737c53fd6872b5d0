#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/launch/hosts.h"
#include "gyre/launch/internal/first_failure.h"
#include "gyre/launch/internal/hosts/remote_agent.h"
#include "gyre/launch/internal/job_metrics.h"
#include "gyre/launch/internal/output.h"
#include "gyre/launch/internal/signals.h"
#include "gyre/launch/internal/watchers.h"
#include "gyre/metrics/pipe.h"

namespace gyre::launch {

/// One job by run_on_hosts(), from the first connection to the last end. Waits, on one thread, for the agents, a signal
/// and a reader who takes our output.
class HostsRun {
 public:
  explicit HostsRun(const HostsOptions& options);

  LaunchResult run();

 private:
  struct Member {
    explicit Member(const Host& host) : agent(host) {}
    RemoteAgent agent;
    metrics::BlockStream metrics{};
    bool dying = false;
    bool awaits_decision = false;
    std::optional<FromAgent::Done> done;
  };

  bool reach();
  bool paused() const;
  void describe_job();
  void watch();
  void wait_for_events();
  void advance_agents();
  void hear(Member& member, Stream stream, std::string_view line);
  void hear(Member& member, const FromAgent& words);
  void keep_log(const FromAgent::Log& log);
  void keep_metrics(Member& member, const std::string& blocks);
  void say_failure(const std::string& sentence);
  void rank_ended(Member& member, const FromAgent::Ended& ended);
  void rank_failed(Member& member, const FromAgent::Ended& ended);
  void judge();
  void decide(const RankFailure& failure);
  void handle_signals();
  void tell_all(const ToAgent& words);
  void end_all();
  bool all_ended() const;
  std::optional<SteadyClock::time_point> due_at() const;
  LaunchResult conclude();
  std::optional<FailureReport> report() const;

  HostsOptions options_;
  int size_ = 0;  ///< Ranks of the job.
  std::vector<std::unique_ptr<Member>> members_;
  Output output_;
  SignalSource signals_;
  std::optional<JobMetrics> metrics_;
  Watchers watchers_;
  bool logs_are_incomplete_ = false;  ///< Was said.
  FirstFailure failures_;
  std::set<int> may_be_lost_;                                 ///< Ranks whose death is no failure of the job.
  std::vector<std::pair<Member*, FromAgent::Ended>> failed_;  ///< To be looked at when all agents have been read.
  bool described_ = false;                                    ///< The agents know the job.
  bool ending_ = false;                                       ///< Nothing is decided any more.
  bool hurry_ = false;                                        ///< What the reader has not read must not keep us.
  bool a_rank_has_failed_ = false;
  std::optional<RankFailure> first_;  ///< Decided.
  std::vector<std::pair<int, SteadyClock::time_point>>
      finished_;  ///< The ranks that had ended with exit code 0 before.
  std::vector<std::optional<ExitStatus>> statuses_;
  const Member* lost_ = nullptr;  ///< The first whose agent ended without its last words.
  std::optional<SteadyClock::time_point> lost_at_;
  std::optional<int> stop_signal_;
  std::optional<SteadyClock::time_point> kill_at_;  ///< Agents that are still there then are killed.
};

}  // namespace gyre::launch
