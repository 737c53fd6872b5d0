#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/process.h"

namespace gyre::launch {

constexpr int kMostRanksPerHost = 4096;

/// This launcher's place in a job over several hosts, where each host has a launcher of its own.
struct HostPart {
  int node = 0;                ///< Which of the hosts, from 0 …
  int nodes = 1;               ///< … of how many.
  int first_rank = 0;          ///< Our ranks are first_rank, first_rank + 1, …
  int size = 1;                ///< Ranks of all hosts.
  std::string rendezvous;      ///< "tcp:HOST:PORT", where the job's rank 0 listens.
  std::vector<std::byte> key;  ///< The job's, of kJobKeyBytes; empty where GYRE_KEY_FILE in `environment` names a file.
};

constexpr std::size_t kJobKeyBytes = 32;

constexpr std::string_view kNoteForOtherHosts = "gyre-agent: ";

/// What `gyre run` starts. Nothing else is consulted: no variable of the calling process, no file.
struct LaunchOptions {
  std::vector<std::string> command;          ///< The program and its arguments; not empty.
  std::vector<std::string> environment;      ///< "NAME=VALUE", given to every rank, with Gyre's own variables added.
  int ranks = 1;                             ///< On this host: 1 … kMostRanksPerHost.
  std::optional<HostPart> part;              ///< Unset: the job is on this host alone.
  std::string master_address = "127.0.0.1";  ///< MASTER_ADDR of the ranks: where torch's store is to be found.
  int master_port = 0;                       ///< MASTER_PORT; 0: a free one of this host.
  std::string run_id = "none";               ///< TORCHELASTIC_RUN_ID of the ranks.
  std::string role = "default";              ///< ROLE_NAME of the ranks.
  int max_restarts = 0;                      ///< How often all ranks are started anew after one has failed.
  /// To and from who started this host's part of a job over several; negative: none. When it ends, the ranks are
  /// stopped, as by SIGTERM. A rank that ends with exit code 0 is told as kNoteForOtherHosts and a line on stderr; the
  /// other hosts get that line through their lifelines.
  int lifeline_fd = -1;
  std::optional<std::filesystem::path> timeline;  ///< GYRE_TIMELINE of the ranks.
  std::optional<std::filesystem::path> log_dir;   ///< Gets rank-0.log, rank-1.log, …; created when missing.
  std::optional<std::string> log_level;           ///< GYRE_LOG_LEVEL of the ranks; unset leaves `environment`'s.
  std::chrono::milliseconds grace{5000};          ///< From the first Ctrl-C or SIGTERM to SIGKILL.
  /// By rank of this host: whether its stdout (1), its stderr (2) or both (3) are passed on; empty: both of all. Log
  /// files get them in any case.
  std::vector<int> shown;
  bool verbose = false;  ///< Says what is started, on stderr.
  bool colour = false;   ///< Where the output is a terminal.
  int stdout_fd = 1;     ///< Where the ranks' stdout goes,
  int stderr_fd = 2;     ///< and their stderr, and the launcher's own words.
};

struct LaunchResult {
  int exit_code = 0;                         ///< What the launcher should exit with.
  std::optional<int> first_failed_rank;      ///< The cause, when ranks failed on their own.
  std::vector<ExitStatus> rank_exit_status;  ///< By rank.
};

/// How many cores this process may use (its affinity mask); at least 1.
int usable_cores();

/// A port of this host that is free now, kept from others (but not from who asks for it by number) while the
/// descriptor is open.
struct ReservedPort {
  int port = 0;
  UniqueFd socket;
};
ReservedPort reserve_port();

/// Starts the ranks on this host, passes their output on line by line, and returns when all of them have ended and
/// nothing of them is left: neither a process that they started, nor a socket, nor memory.
///
/// * The first rank that fails (killed by a signal, or an exit code other than 0) ends the others within a second, and
///   one closing block on stderr says what happened. The exit code is that rank's, 128 + signal where one killed it.
/// * SIGINT, SIGTERM, SIGHUP, SIGQUIT (unless ignored by the caller) are handed to all ranks; after `grace`, or at
///   the second signal, they are killed. The exit code is 128 + the first signal.
/// * After a failure the ranks are started again, with TORCHELASTIC_RESTART_COUNT one higher, `max_restarts` times.
/// * When this process is killed, a guardian process that it forked kills all that the ranks have started.
///
/// Errors before any rank runs: SpawnError for a command that cannot be started; Error(kInvalidArgument, kIo,
/// kResourceExhausted, …) for the rest. Owns the process's signals and children while it runs: call it from a
/// single-threaded process only. Blocks.
LaunchResult launch(const LaunchOptions& options);

}  // namespace gyre::launch
