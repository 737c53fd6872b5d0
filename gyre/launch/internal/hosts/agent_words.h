#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/process.h"
#include "gyre/launch/internal/first_failure.h"
#include "gyre/launch/internal/report.h"

namespace gyre::launch {

// The lines between `gyre run -H` and its agents.

/// What an agent tells, on its stderr, among the lines of its ranks; one of the members is set.
struct FromAgent {
  struct Ended {
    int rank = 0;
    ExitStatus status;
    bool asked_to_end = false;
  };
  /// What a rank has written.
  struct Log {
    int rank = 0;
    std::string bytes;
  };
  /// The last words, when all is over.
  struct Done {
    std::vector<int> ended_because;
    std::vector<int> killed_after_grace;
    std::vector<WatchdogWords> watchdogs;  ///< Of this host's ranks.
    std::optional<FailureReport> report;   ///< On the rank that failed first, where it was one of this host's.
  };

  std::optional<Ended> ended;
  std::string report;               ///< See parse_report().
  std::optional<bool> dying;        ///< Whether a rank that has not ended is known to be dying.
  std::string note;                 ///< See EndedRanks::note().
  std::string metrics;              ///< Blocks of samples; see metrics::BlockStream.
  std::optional<Log> log;           ///< The next piece of it.
  bool watchdog_has_acted = false;  ///< What the ranks of all hosts still write tells the cause of a failure.
  bool awaits_decision = false;     ///< All its ranks have ended, one of them with a failure.
  std::optional<Done> done;
};

constexpr std::string_view kFromAgent = "gyre-agent: ";

/// With kFromAgent in front and without an end.
std::string to_line(const FromAgent& words);
/// Of a line without its end; nothing if it is none, or speaks of ranks that the job of `ranks` does not have.
std::optional<FromAgent> parse_from_agent(std::string_view line, int ranks);

/// What an agent is told, through its stdin behind the job's description.
struct ToAgent {
  enum class Word {
    kRankHasEnded,    ///< `text`: another agent's note.
    kARankHasFailed,  ///< From now on it is worth to look for ranks that are dying.
    kFirstFailure,    ///< `number`: the rank that failed first; the others must end.
    kLost,            ///< `number`: a rank that has failed, and without which the others go on.
    kStop,            ///< `number`: with that signal.
    kKill,
  };
  Word word;
  int number = 0;
  std::string text;
};

/// Without an end.
std::string to_line(const ToAgent& words);
std::optional<ToAgent> parse_to_agent(std::string_view line);

}  // namespace gyre::launch
