#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/process.h"

namespace gyre::jobs {

constexpr int kMostRanksPerHost = 4096;

/// What `gyre run` starts. Nothing else is consulted: no variable of the calling process, no file.
struct LaunchOptions {
  std::vector<std::string> command;      ///< The program and its arguments; not empty.
  std::vector<std::string> environment;  ///< "NAME=VALUE", given to every rank, with Gyre's own variables added.
  int ranks = 1;                         ///< 1 … kMostRanksPerHost.
  std::optional<std::filesystem::path> timeline;  ///< GYRE_TIMELINE of the ranks.
  std::optional<std::filesystem::path> log_dir;   ///< Gets rank-0.log, rank-1.log, …; created when missing.
  std::optional<std::string> log_level;           ///< GYRE_LOG_LEVEL of the ranks; unset leaves `environment`'s.
  std::chrono::milliseconds grace{5000};          ///< From the first Ctrl-C or SIGTERM to SIGKILL.
  bool verbose = false;                           ///< Says what is started, on stderr.
  bool colour = false;                            ///< Where the output is a terminal.
  int stdout_fd = 1;                              ///< Where the ranks' stdout goes,
  int stderr_fd = 2;                              ///< and their stderr, and the launcher's own words.
};

struct LaunchResult {
  int exit_code = 0;                         ///< What the launcher should exit with.
  std::optional<int> first_failed_rank;      ///< The cause, when ranks failed on their own.
  std::vector<ExitStatus> rank_exit_status;  ///< By rank.
};

/// Starts the ranks on this host, passes their output on line by line, and returns when all of them have ended and
/// nothing of them is left: neither a process that they started, nor a socket, nor memory.
///
/// * The first rank that fails (killed by a signal, or an exit code other than 0) ends the others within a second, and
///   one closing block on stderr says what happened. The exit code is that rank's, 128 + signal where one killed it.
/// * SIGINT, SIGTERM, SIGHUP, SIGQUIT (unless ignored by the caller) are handed to all ranks; after `grace`, or at
///   the second signal, they are killed. The exit code is 128 + the first signal.
/// * When this process is killed, a guardian process that it forked kills all that the ranks have started.
///
/// Errors before any rank runs: SpawnError for a command that cannot be started; Error(kInvalidArgument, kIo,
/// kResourceExhausted, …) for the rest. Owns the process's signals and children while it runs: call it from a
/// single-threaded process only. Blocks.
LaunchResult launch(const LaunchOptions& options);

}  // namespace gyre::jobs
