#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre {

/// How a process ended.
struct ExitStatus {
  int code = 0;    ///< What it returned; 0 when a signal killed it.
  int signal = 0;  ///< The signal that killed it; 0 when it returned.

  bool success() const { return code == 0 && signal == 0; }
  /// The shell's convention: the exit code, or 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

/// "SIGKILL"; "signal 77" where the system has no name for it.
std::string signal_name(int signal);

/// A program that could not be started. `errno_value()` says why, as execve(2) would.
class SpawnError : public Error {
 public:
  SpawnError(ErrorCode code, std::string message, int errno_value, std::string command, std::string file)
      : Error(code, std::move(message)),
        errno_value_(errno_value),
        command_(std::move(command)),
        file_(std::move(file)) {}
  int errno_value() const noexcept { return errno_value_; }
  /// What was to be started, as it was given.
  const std::string& command() const noexcept { return command_; }
  /// The file that `command()` names, or that PATH has for it; empty where PATH has none.
  const std::string& file() const noexcept { return file_; }

 private:
  int errno_value_;
  std::string command_;
  std::string file_;
};

/// A descriptor for the process `pid`, readable once it has ended; empty, with errno, when there is none.
UniqueFd open_pidfd(pid_t pid);
/// Signals the very process that `pidfd` was opened for; false, with errno, when it is gone or not ours to signal.
bool send_signal(const UniqueFd& pidfd, int signal);

/// As whom a process runs.
struct UserId {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  ///< Supplementary ones.
  bool operator==(const UserId&) const = default;
};

struct SpawnOptions {
  std::vector<std::string> argv;         ///< argv[0] without a slash is looked up in the PATH of `environment`.
  std::vector<std::string> environment;  ///< "NAME=VALUE": all of it, nothing is inherited.
  std::vector<int> inherited_fds;        ///< Stay open under the same numbers, though close-on-exec here.
  int stdin_fd = -1;                     ///< Becomes the child's stdin; negative: that is /dev/null.
  int stdout_fd = 1;                     ///< Becomes the child's stdout.
  int stderr_fd = 2;                     ///< Becomes the child's stderr.
  bool own_process_group = false;        ///< The child leads a new group, numbered as its pid.
  int parent_death_signal = 0;           ///< Sent to the child when the calling thread dies; 0 for none.
  std::string folder;                    ///< Where the child starts; empty: where we are.
  std::optional<UserId> user;            ///< Unset: as we are. Another one needs our privileges (root).
  /// Folders of cgroup file systems that the child enters before it becomes `user`; several where each controller has a
  /// tree of its own (cgroup v1).
  std::vector<std::string> cgroups;
};

/// The value of `name` in a list of "NAME=VALUE"; empty when it is not there.
std::string variable_of(const std::vector<std::string>& environment, std::string_view name);

/// The file that a shell would run for `command`: itself when it has a slash, else the first executable file of that
/// name in `path_variable`. SpawnError otherwise: EACCES where there is a file that we may not run; ENOENT where there
/// is none, which names the folders of `path_variable` that we may not look into.
std::string find_command(const std::string& command, std::string_view path_variable);

/// A child process of ours. Not thread-safe. The destructor ends and reaps a child that is still there.
class Process {
 public:
  /// Returns once the new program runs, with no signal blocked, SIGPIPE and SIGXFSZ at their defaults; SpawnError when
  /// it cannot. Thread-safe.
  static Process spawn(const SpawnOptions& options);

  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// Readable (poll, epoll) from the moment the process has ended.
  int pidfd() const { return pidfd_.get(); }

  /// How it ended, or nothing while it runs. Does not reap: its pid, and the group of that number, stay ours until
  /// reap(), so that signalling them can never hit a stranger.
  std::optional<ExitStatus> exit_status() const;
  /// As exit_status(), but waits for the end until the deadline.
  std::optional<ExitStatus> wait(Deadline deadline) const;

  /// To the process, or to every process of its group when it leads one. A group may outlive its leader.
  /// No effect when nobody is there any more or after reap().
  void signal(int signal_number) const;
  /// Gives the pid back to the system. The process must have ended.
  void reap();

 private:
  Process(pid_t pid, UniqueFd pidfd, bool leads_group)
      : pid_(pid), pidfd_(std::move(pidfd)), leads_group_(leads_group) {}

  pid_t pid_;
  UniqueFd pidfd_;
  bool leads_group_;
  bool reaped_ = false;
};

}  // namespace gyre
