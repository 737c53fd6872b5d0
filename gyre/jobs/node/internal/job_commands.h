#pragma once

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::node::internal {

/// What commands in a job find there (ADR 137).
struct CommandPlace {
  std::vector<Variables> environments;  ///< Of the job's processes on this node, of which there is at least one.
  int first_rank = 0;                   ///< Of which the first is the environment.
  std::string folder;                   ///< Where they start.
  std::string mark;                     ///< "NAME=VALUE", of all of their processes.
};

/// The commands that users run in a job, in the process of its attempt: each has a process that serves it
/// (node/job_command.h), and none outlives this object. Thread-safe.
class JobCommands {
 public:
  /// `program`: of ours.
  explicit JobCommands(std::string program) : program_(std::move(program)) {}
  ~JobCommands();
  JobCommands(const JobCommands&) = delete;
  JobCommands& operator=(const JobCommands&) = delete;

  /// From now on commands are started.
  void allow(CommandPlace place);
  /// Starts the process that serves the command of `channel`, with the environment of that rank; negative: of the first
  /// process. Where it cannot be, the channel is told why. The process dies with the thread that has called this.
  void start(int rank, UniqueFd channel);
  /// Ends them all, and starts none any more. Waits some seconds at most.
  void end();

 private:
  std::string why_not() const GYRE_REQUIRES(mutex_);
  void spawn(int rank, const UniqueFd& channel) GYRE_REQUIRES(mutex_);

  const std::string program_;
  Mutex mutex_;
  std::optional<CommandPlace> place_ GYRE_GUARDED_BY(mutex_);
  bool ended_ GYRE_GUARDED_BY(mutex_) = false;
  std::list<Process> processes_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::node::internal
