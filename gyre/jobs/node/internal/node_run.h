#pragma once

#include <optional>
#include <string>

#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/attempt_host.h"
#include "gyre/jobs/node/internal/attempt_journal.h"
#include "gyre/jobs/node/internal/attempt_task.h"
#include "gyre/jobs/node/internal/commands.h"
#include "gyre/jobs/node/internal/job_commands.h"
#include "gyre/jobs/node/internal/node_probe.h"
#include "gyre/jobs/node/internal/process_set.h"
#include "gyre/jobs/node/internal/python_environment.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::node::internal {

/// The straight way of one attempt on one node, from the first step that has not been taken to the last, in the process
/// of the attempt. Runs on one thread; `commands` come from others.
class NodeRun {
 public:
  /// All of them must outlive this object.
  NodeRun(const AttemptTask& task, const Commands& commands, AttemptHost& host, JobCommands& job_commands);

  /// The cluster's setup task. Returns with it done, or with the attempt stopped, and its record says why. Throws
  /// LeaveNow.
  void set_up();
  /// Everything else. Returns with the attempt stopped and nothing of it left. Throws LeaveNow.
  void go();

 private:
  void run_setup();
  AttemptEnds run_steps();
  void make_places();
  void make_place(const std::string& what, const std::string& folder) const;
  /// Whether the image has what jobs need.
  void check_image() const;
  void unpack_code();
  /// Of a job that has requirements.
  void find_environment();
  void make_environment();
  AttemptEnds unusable_environment(const std::string& why) const;
  void run_preparation();
  void find_facts();
  void wait_for_others();
  AttemptEnds run_processes();
  /// From now on users may run commands in the job.
  void allow_commands(const NodePlan& plan);
  ProcessSet::Ended run_plan(const NodePlan& plan, const std::vector<NodePlan>& plans);
  AttemptEnds hold_until_finished();
  /// After a server of this node has failed: whether the workers of all nodes are done. Waits a few seconds for the
  /// service to say so.
  bool all_workers_are_done();
  void clean_up();
  /// Copies what the job's patterns name from the first node's work folder, and notes what stays there.
  void keep_work_files();
  void tell_of_own_outputs();

  const orders::WorkOrder& order() const { return journal_.order(); }
  JobEnvironment environment_of(const Variables& of_process) const;
  Started started_process(const std::string& line, bool rank, const Variables& environment) const;
  AttemptEnds stopped() const;

  const AttemptTask& task_;
  const NodeFolders folders_;
  const Commands& commands_;
  JobCommands& job_commands_;
  AttemptJournal journal_;
  std::string log_folder_;
  std::optional<PortLease> ports_;
  std::optional<PythonEnvironment> environment_;
  bool begun_;  ///< The job's processes have.
};

}  // namespace gyre::jobs::node::internal
