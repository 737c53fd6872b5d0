#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/process.h"

namespace gyre::launch {

/// All that the closing block tells about a job that failed.
struct FailureReport {
  int rank = 0;
  int ranks = 1;
  std::string host;
  pid_t pid = 0;
  ExitStatus status;
  std::chrono::milliseconds after{0};  ///< From the start of the job to the failure.
  std::deque<std::string> last_lines;
  std::optional<std::string> log_file;
  std::vector<int> ended_because;                   ///< Ranks that still ran.
  std::vector<int> finished_before;                 ///< Ranks that had already ended with exit code 0.
  std::optional<std::int64_t> out_of_memory_kills;  ///< On this host during the job; nothing when it is not known.
};

/// The block: several lines, each ended by a newline. Pure.
std::string failure_block(const FailureReport& report, bool colour);

/// "exit code 3"; "SIGKILL (signal 9)".
std::string describe_exit(const ExitStatus& status);

/// "0-2, 5". Ascending input.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace gyre::launch
