#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/process.h"

namespace gyre::launch {

/// What torch's watchdog of a device's library (NCCL) has written in one rank, which it ends with SIGABRT when a call
/// has not been carried out within its limit.
struct WatchdogWords {
  int rank = 0;             ///< Of the job.
  std::string group;        ///< As torch names it, "0(default_pg)"; empty if it does not.
  long call = -1;           ///< The number in its group of the call whose limit has passed; negative: none has here.
  std::string operation;    ///< That call: "ALLREDUCE".
  std::string elements;     ///< "NumelIn=4, NumelOut=4".
  std::string last_called;  ///< The number of the latest call that the rank has made in that group; empty: not known.
};

/// Collects them from the lines that a rank writes to stderr. Memory is bounded. Not thread-safe.
class WatchdogReader {
 public:
  explicit WatchdogReader(int rank) { words_.rank = rank; }

  void add(std::string_view line);

  /// Whether a limit has passed in this rank.
  bool has_acted() const { return words_.call >= 0; }
  /// Nothing where no watchdog has written anything.
  std::optional<WatchdogWords> words() const;
  /// The newest report of Gyre's own about ranks that are missing; may be empty.
  const std::string& stall() const { return stall_; }

 private:
  WatchdogWords words_;
  bool has_spoken_ = false;
  std::string stall_;
};

/// Whether it was one of these watchdogs that has ended a rank in this way.
bool was_ended_by_watchdog(int rank, const ExitStatus& status, const std::vector<WatchdogWords>& words);

/// What the words of all ranks say about the cause.
struct WatchdogVerdict {
  std::string cause;        ///< "rank 1 of 4 did not make a call that others waited for".
  std::string call;         ///< Which one, or how the ranks' calls differ.
  std::string advice;       ///< What to look for.
  std::optional<int> rank;  ///< The one that is the cause, if it is one.
};

/// Nothing if no limit has passed. `words`: by rank, of those of the job's `ranks` that have any. Pure.
std::optional<WatchdogVerdict> judge_watchdogs(const std::vector<WatchdogWords>& words, int ranks);

}  // namespace gyre::launch
