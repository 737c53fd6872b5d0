#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/acting_as.h"
#include "gyre/base/clock.h"
#include "gyre/jobs/agent/internal/commands.h"
#include "gyre/jobs/agent/internal/launch_specification.h"
#include "gyre/jobs/agent/internal/node_probe.h"
#include "gyre/jobs/agent/internal/node_state.h"
#include "gyre/jobs/agent/internal/private_folder.h"
#include "gyre/jobs/agent/internal/process_logs.h"
#include "gyre/jobs/agent/job_environment.h"
#include "gyre/jobs/agent/launch_plan.h"
#include "gyre/jobs/agent/launched_set.h"
#include "gyre/jobs/agent/node_job.h"

namespace gyre::jobs::agent::internal {

/// Ends an attempt on this node with this error; nothing: it was asked to end.
struct AttemptEnds {
  int exit_code = 0;
  std::optional<JobError> error;
  bool asked_to_end = false;
};

/// Tells what NodeJob::report() shows.
class ReportSink {
 public:
  virtual ~ReportSink() = default;
  virtual void update(const std::function<void(NodeReport&)>& change) = 0;
};

/// Kills what the set still runs, and lets it go. A set that is not there is fine.
void end_set(const std::filesystem::path& socket);

/// The straight way of one attempt on one node, from the first step that has not been taken to the exit record. Runs on
/// one thread; `commands` come from others.
class NodeRun {
 public:
  NodeRun(const NodeOptions& options, NodeState state, Commands& commands, ReportSink& sink);

  /// Returns with the attempt ended, or when it is to be left as it is (Commands::leave). Does not throw.
  void go();

 private:
  struct LeaveNow {};  // Thrown by waits.

  /// How the processes of one LaunchedSet ended.
  struct Ended {
    int exit_code = 0;
    bool stopped = false;  ///< We have asked them to.
  };
  /// Where the output of each process goes, in the order of its ranks.
  struct LogFiles {
    std::string stdout_file;
    std::string stderr_file;
  };

  AttemptEnds run_steps();
  void accept();
  void prepare_folders();
  void unpack_code();
  void run_setup();
  void run_preparation();
  /// "calls apt-get (in job-prep.sh), which needs root, and runs as user 'nobody'; …", where the preparation does so;
  /// else empty.
  std::string wish_for_root(const std::string& line, const Variables& variables) const;
  void find_facts();
  /// The port where it listens.
  int start_shell();
  void wait_for_others();
  AttemptEnds run_processes();
  AttemptEnds hold_until_finished();
  /// After a server of this node has failed: whether the workers of all nodes are done. Waits a few seconds for the
  /// service to say so.
  bool all_workers_are_done();
  AttemptEnds failed_with(int exit_code) const;
  /// "; user 'nobody' cannot …", where that may be why these shell lines failed; else empty.
  std::string obstacles(const std::vector<std::string>& lines, int exit_code) const;
  void write_shell_table() const;
  void write_programs() const;
  void stop_at(const AttemptEnds& end);
  void clean_up();

  /// Starts the set, or finds the one that an agent before us has started.
  LaunchedSet start_or_find(const std::string& name, const nlohmann::json& specification);
  /// Reads records until the set has finished. `servers`, where there are any, are ended once the `main` others have
  /// all succeeded and the service says that nobody needs them any more.
  Ended follow(LaunchedSet& set, const std::vector<LogFiles>& logs, std::size_t main,
               const std::vector<bool>& servers = {});
  void write_output(std::vector<std::vector<std::unique_ptr<LogStream>>>& streams, const nlohmann::json& record);
  /// Asks the set to end, once, when a stop was commanded or the time is over.
  void obey(LaunchedSet& set);
  void release(const std::string& name, LaunchedSet& set);
  std::optional<StopReason> must_stop() const;
  AttemptEnds stopped_because(StopReason reason) const;
  Deadline wall_clock_limit() const;

  Variables base_variables() const;
  JobEnvironment environment_of(const Variables& of_process) const;
  Started started_process(const std::string& line, bool rank, const Variables& environment, const LogFiles& logs) const;
  std::vector<std::vector<std::unique_ptr<LogStream>>> open_logs(const std::vector<LogFiles>& logs);
  bool has_secrets() const { return !secrets_.empty(); }
  void remember_log_lengths(const std::vector<LogFiles>& logs);
  /// While what it returns lives, this thread finds and makes files with the rights of the job's user: for every path
  /// that a job has chosen, or could have put a link into.
  ActingAs as_the_job() const;
  ActingAs as_owner_of_logs() const;
  void make_own_folder(const std::filesystem::path& folder) const;
  void make_folder_below_prefix(const std::string& prefix) const;
  // AttemptEnds says which place the node cannot use, and why.
  void make_mounts(const std::vector<Mount>& mounts, const char* owner, const std::filesystem::path& root) const;
  void make_place(const std::string& what, const std::string& folder) const;
  void make_places(const JobEnvironment& environment);
  /// What is in /tmp and /dev/shm for the job's account alone, where jobs have accounts of their own.
  void use_private_folders();
  void leave_private_folders();

  void note(const std::string& sentence);
  void log(const std::string& sentence);
  void take(Step step);

  const NodeOptions& options_;
  NodeFolders folders_;
  NodeState state_;
  Commands& commands_;
  ReportSink& sink_;
  MountPlan mounts_;
  std::vector<std::string> secrets_;
  std::string log_folder_;
  std::optional<PortLease> ports_;
  std::optional<PrivateFolder> temporary_;  // $TMPDIR.
  std::optional<PrivateFolder> memory_;     // What this node's processes see as /dev/shm.
  // Of the set that is being followed.
  int first_rank_ = 0;
  bool stop_asked_ = false;
  bool kill_asked_ = false;
  bool main_done_ = false;
  bool log_failed_ = false;
  bool sets_up_ = false;  // The cluster's setup task, whose logs are not the job's.
  nlohmann::json last_finished_;
};

}  // namespace gyre::jobs::agent::internal
