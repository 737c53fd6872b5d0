#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/attempt_container.h"
#include "gyre/jobs/node/internal/attempt_task.h"
#include "gyre/jobs/node/internal/json_lines.h"

namespace gyre::jobs::node::internal {

/// The process of an attempt, as the node program that starts it sees it. It dies with the thread that has started it.
class AttemptChild {
 public:
  /// As `account`; unset: as we are. `code`: the archive of the job's code, which it inherits. With `inside` it runs in
  /// a container, and what is seen here is a process that stands for it. It enters `cgroups`. Error(kIo …).
  AttemptChild(AttemptTask task, const std::optional<UserId>& account, const UniqueFd& code,
               const std::optional<ContainerDoor>& inside = std::nullopt, const std::vector<std::string>& cgroups = {});
  /// Kills it.
  ~AttemptChild();
  AttemptChild(const AttemptChild&) = delete;
  AttemptChild& operator=(const AttemptChild&) = delete;

  JsonLines& lines() { return lines_; }
  /// Readable once it has ended.
  int ended_fd() const { return process_->pidfd(); }
  bool has_ended() const;
  pid_t pid() const { return process_->pid(); }
  /// Waits until it has ended, and kills it at the deadline. How it failed: "SIGKILL", "exit code 1: its last words";
  /// empty where it has ended as it should.
  std::string end(Deadline deadline);

 private:
  struct Ends {
    UniqueFd ours;
    UniqueFd its;
  };
  static Ends make_channel();
  static Ends make_pipe();
  static std::unique_ptr<Process> start(const AttemptTask& task, const std::optional<UserId>& account,
                                        const Ends& channel, const Ends& words, const UniqueFd& code,
                                        const std::optional<ContainerDoor>& inside,
                                        const std::vector<std::string>& cgroups);
  AttemptChild(AttemptTask task, const std::optional<UserId>& account, const UniqueFd& code,
               const std::optional<ContainerDoor>& inside, const std::vector<std::string>& cgroups, Ends channel,
               Ends words);

  /// Nothing if it cannot be reaped: a job may trace it, and keep it from us even when it is dead.
  std::optional<ExitStatus> wait(Deadline deadline) const;

  std::unique_ptr<Process> process_;  ///< Null once it has ended.
  JsonLines lines_;
  UniqueFd words_;  ///< What it prints: errors.
};

}  // namespace gyre::jobs::node::internal
