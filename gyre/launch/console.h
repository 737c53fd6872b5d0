#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/process.h"
#include "gyre/launch/rank_set.h"
#include "gyre/launch/watcher.h"

namespace gyre::launch {

/// What `gyre run` starts. Nothing else is consulted: no variable of the calling process, no file.
struct LaunchOptions {
  std::vector<std::string> command;          ///< The program and its arguments; not empty.
  std::vector<std::string> environment;      ///< "NAME=VALUE", given to every rank, with Gyre's own variables added.
  int ranks = 1;                             ///< On this host: 1 … kMostRanksPerHost.
  int servers = 0;                           ///< How many of the job's ranks, the last ones, are parameter servers …
  std::vector<std::string> server_command;   ///< … and run this.
  std::optional<HostPart> part;              ///< Unset: the job is on this host alone.
  std::string master_address = "127.0.0.1";  ///< MASTER_ADDR of the ranks: where torch's store is to be found.
  int master_port = 0;                       ///< MASTER_PORT; 0: a free one of this host.
  std::string run_id = "none";               ///< TORCHELASTIC_RUN_ID of the ranks.
  std::string role = "default";              ///< ROLE_NAME of the ranks.
  int max_restarts = 0;                      ///< How often all ranks are started anew after one has failed.
  /// From the process that started this host's part of a job over several (run_on_hosts()); negative: none. When it
  /// closes, the ranks are stopped, as by SIGTERM. What happens to the ranks becomes lines on stderr for that process,
  /// which decides which rank failed first, and tells the person.
  int lifeline_fd = -1;
  std::optional<std::filesystem::path> timeline;  ///< GYRE_TIMELINE of the ranks.
  /// Gets what the ranks log and use. One that an earlier job has left there is renamed.
  std::optional<std::filesystem::path> metrics;
  std::uint64_t metrics_bytes = 0;  ///< How long that file may become; 0: as metrics::FileWriter has it.
  /// A job service has asked for that file: it gets neither the command nor reports, in which a secret may stand, and
  /// where it cannot be written the job goes on.
  bool metrics_for_service = false;
  bool forwards_metrics = false;  ///< With lifeline_fd: they go to that process, as lines on stderr.
  bool forwards_logs = false;     ///< The same with what the log files of the ranks get, or would.
  /// Gets rank-0.log, rank-1.log, …; created when missing. What an earlier job has left there is renamed.
  std::optional<std::filesystem::path> log_dir;
  bool names_logs = true;                 ///< In the closing block; false where the logs are removed with the job.
  JobWatcher* watcher = nullptr;          ///< May be null; must outlive the call.
  std::optional<std::string> log_level;   ///< GYRE_LOG_LEVEL of the ranks; unset leaves `environment`'s.
  std::chrono::milliseconds grace{5000};  ///< From the first Ctrl-C or SIGTERM to SIGKILL.
  /// By rank of this host: whether its stdout (1), its stderr (2) or both (3) are passed on; empty: both of all. Log
  /// files get them in any case.
  std::vector<int> shown;
  /// The rank of the job whose stdin is `stdin_fd`, where it is one of ours; unset: rank 0, but only where that is a
  /// terminal and while the rank waits for input. Everybody else's is empty. -1: everybody's is.
  std::optional<int> stdin_rank;
  int stdin_fd = 0;
  bool verbose = false;  ///< Says what is started, on stderr, and shows every traceback.
  bool colour = false;   ///< Where the output is a terminal.
  int stdout_fd = 1;     ///< Where the ranks' stdout goes,
  int stderr_fd = 2;     ///< and their stderr, and the launcher's own words.
};

struct LaunchResult {
  int exit_code = 0;                         ///< What the launcher should exit with.
  std::optional<int> first_failed_rank;      ///< The cause, when ranks failed on their own.
  std::vector<ExitStatus> rank_exit_status;  ///< By rank.
};

/// Runs a RankSet in the foreground of a terminal, or of a script: passes the ranks' output on line by line, hands
/// signals to them, and returns when the set has finished.
///
/// * After the first failure one closing block on stderr says what happened. The exit code is that rank's,
///   128 + signal where one killed it. Of the tracebacks of other ranks one line is shown.
/// * SIGINT, SIGTERM, SIGHUP, SIGQUIT (unless ignored by the caller) are handed to all ranks; after `grace`, or at
///   the second signal, they are killed. The exit code is 128 + the first signal.
/// * After a failure the ranks are started again, with TORCHELASTIC_RESTART_COUNT one higher, `max_restarts` times.
///
/// Errors before any rank runs: SpawnError for a command that cannot be started; Error(kInvalidArgument, kIo,
/// kResourceExhausted, …) for the rest. Owns the process's signals and children while it runs: call it from a
/// single-threaded process only. Blocks.
LaunchResult run_on_console(const LaunchOptions& options);

}  // namespace gyre::launch
