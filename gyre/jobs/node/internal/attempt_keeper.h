#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/node/internal/attempt_child.h"
#include "gyre/jobs/node/internal/attempt_container.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/attempt_task.h"
#include "gyre/jobs/node/internal/commands.h"
#include "gyre/jobs/node/internal/job_limits.h"
#include "gyre/jobs/node/internal/private_folder.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::jobs::node::internal {

class AttemptPlaces;

/// Shows what NodeJob::report() returns.
class ReportSink {
 public:
  virtual ~ReportSink() = default;
  virtual void update(const std::function<void(orders::NodeReport&)>& change) = 0;
};

/// The privileged part of one attempt on one node, from the order to the exit record (ADR 87). It does what only the
/// node program's user may do: it makes the node's folders and the mounts, has the cluster's setup task run, and takes
/// all of that away again. In between it starts the process of the attempt, which has become the job's account and does
/// everything else, writes down how far that is, and passes the service's commands on. Runs on one thread; `commands`
/// come from others.
class AttemptKeeper {
 public:
  AttemptKeeper(const NodeOptions& options, SavedAttempt state, Commands& commands, ReportSink& sink);

  /// Returns with the attempt ended, or when it is to be left as it is (Commands::leave). Does not throw.
  void go();

 private:
  /// What a process has been told, and by when it must have done it.
  struct Told {
    bool run = false;
    bool finish = false;
    std::optional<StopCommand> stop;
    Deadline stopped_by = Deadline::never();
    Deadline cleaned_by = Deadline::never();
  };

  void prepare();
  void accept();
  void set_up();
  void go_on_at_the_end();
  void tell(const AttemptPlaces& places);
  void use_private_folders();
  /// Names in /dev/shm that are not the attempt's.
  std::vector<std::string> memory_of_others() const;
  /// Where the job has one. Throws AttemptEnds, LeaveNow.
  void use_container();
  void use_limits();
  void run_job();
  /// Has a process do its part of the attempt; starts another one when it dies. Throws AttemptEnds when it cannot be
  /// done, and LeaveNow.
  void run_process(AttemptTask::Kind kind);
  AttemptTask task(AttemptTask::Kind kind, bool inside) const;
  void await_code();
  /// Invalid where there is none, or not any more.
  UniqueFd open_code() const;
  /// Serves the process until it has gone. Why it must be ended; empty: it need not.
  std::string serve(AttemptChild& process);
  void obey(const nlohmann::json& line, AttemptChild& process, Told& told);
  void take_progress(const nlohmann::json& progress, AttemptChild& process, Told& told);
  void take_report(const nlohmann::json& report);
  void pass_on(AttemptChild& process, Told& told);
  Deadline end_of_clean_up() const;
  Deadline patience(const Told& told) const;
  void note(const std::string& sentence);
  void stop_at(const AttemptEnds& end);
  /// What the kernel has killed for want of memory, in the record or in the job's events.
  void tell_of_kills();
  void clean_up();
  void end_processes();
  void write_record();

  const NodeOptions& options_;
  const NodeFolders folders_;
  SavedAttempt state_;
  Commands& commands_;
  ReportSink& sink_;
  PrivateFolders private_;
  std::optional<AttemptContainer> container_;
  JobLimits limits_;  ///< Where there is no container, which has its own.
  bool has_places_ = false;
  bool was_continued_ = false;      ///< The process, which somebody had stopped.
  bool cleaned_ = false;            ///< By the process of the job.
  std::vector<std::string> lines_;  ///< For the job's log on the node.
};

}  // namespace gyre::jobs::node::internal
