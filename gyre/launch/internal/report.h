#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/process.h"
#include "gyre/launch/internal/traceback.h"
#include "gyre/launch/internal/watchdog.h"

namespace gyre::launch {

/// All that the closing block tells about a job that failed.
struct FailureReport {
  int rank = 0;
  int ranks = 1;
  std::string host;
  pid_t pid = 0;
  ExitStatus status;
  std::chrono::milliseconds after{0};   ///< From the start of the job to the failure.
  std::optional<PythonError> error;     ///< With which it ended, as far as its last lines show.
  bool child_failed_to_import = false;  ///< See TracebackReader.
  std::deque<std::string> last_lines;
  std::optional<std::string> log_file;
  bool is_services_job = false;                     ///< A job service keeps its output.
  std::vector<int> ended_because;                   ///< Ranks that still ran.
  std::vector<int> finished_before;                 ///< Ranks that had already ended with exit code 0.
  bool they_left_a_group = false;                   ///< … after they had been ranks of a group with this one.
  std::optional<std::int64_t> out_of_memory_kills;  ///< On this host during the job; nothing when it is not known.
  std::optional<std::uint64_t> memory_limit_bytes;  ///< Of the launcher's cgroups, where processes of them were killed.
  std::vector<WatchdogWords> watchdogs;             ///< What watchdogs of devices' libraries have written, by rank.
  std::string stall;                                ///< The newest report of Gyre's about missing ranks; may be empty.
};

/// The block: several lines, each ended by a newline. Pure.
std::string failure_block(const FailureReport& report, bool colour);

/// What is said at the first Ctrl-C. `on_terminal`: behind the "^C" that a terminal shows.
std::string interrupt_words(std::chrono::milliseconds grace, bool on_terminal);
/// What is said at the end of a job of `ranks` that was stopped. Nothing where a pipe's reader went away.
std::string stop_words(int signal, std::size_t ranks, const std::vector<int>& killed, std::chrono::milliseconds grace);

/// "train.py:12, in step" for a file below `folder`, which ends with a slash; others as they are.
std::string place_seen_from(const std::string& folder, const std::string& place);

/// "exit code 3"; "SIGKILL (signal 9)".
std::string describe_exit(const ExitStatus& status);

/// "0-2, 5". Ascending input.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace gyre::launch
