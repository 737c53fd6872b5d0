#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/internal/output.h"
#include "gyre/launch/internal/tail_buffer.h"
#include "gyre/launch/internal/traceback.h"
#include "gyre/launch/internal/watchdog.h"

namespace gyre::launch {

/// For RankOutput's `shown`: stdout is 1, stderr 2.
constexpr int kShowBoth = 3;

/// What one rank writes, on its way to the launcher's output, its log file and the report of its end. Not thread-safe.
class RankOutput {
 public:
  /// `log` may be empty. `shown`: 1 stdout, 2 stderr, 3 both go to the output as well. `holds_tracebacks`: they wait
  /// for release() or fold(), and what follows on stderr with them.
  RankOutput(int rank, UniqueFd log, int shown, bool holds_tracebacks)
      : rank_(rank), log_(std::move(log)), shown_(shown), watchdog_(rank), holds_tracebacks_(holds_tracebacks) {}

  /// Empty bytes: the stream has ended.
  void add(Stream stream, std::string_view bytes, Output& output);

  /// Whether its last line has no end yet, as a prompt has none.
  bool has_unfinished_line() const;
  /// The rank waits for an answer to that line: shows it, on a terminal as the last line.
  void show_prompt(Output& output);
  /// The answer has been typed, and the person has ended that line. No effect on a line that was not shown.
  void end_prompt(Output& output);

  /// Until when a traceback waits in a job that goes on, which shows that it was caught; nothing when none waits. An
  /// error of Gyre's waits longer: its rank has probably ended because of another, and has to clean up.
  std::optional<SteadyClock::time_point> held_until() const;
  /// Shows what waits.
  void release(Output& output);
  /// Shows one line in place of what waits. `folder`: see place_seen_from().
  void fold(Output& output, const std::string& folder);

  int rank() const { return rank_; }
  const TailBuffer& tail() const { return tail_; }
  const TracebackReader& traceback() const { return traceback_; }
  const WatchdogReader& watchdog() const { return watchdog_; }
  /// From now on take_log() has what a log file would get.
  void keep_log() { keeps_log_ = true; }
  std::string take_log() { return std::exchange(kept_log_, {}); }
  /// Why the log file has stopped growing, if it has; said once.
  std::string take_log_failure() { return std::exchange(log_failure_, {}); }

 private:
  struct HeldLine {
    std::string text;
    LineEnd end;
  };

  bool is_shown(Stream stream) const { return (shown_ & (1 << static_cast<int>(stream))) != 0; }
  void show(Stream stream, std::string_view text, LineEnd end, Output& output);
  LineSplitter::Sink sink_for(Stream stream, Output& output);
  void write_log(std::string_view text);

  int rank_;
  std::array<LineSplitter, kStreams> lines_;
  UniqueFd log_;
  int shown_;
  std::string log_pending_;
  std::string log_failure_;
  bool keeps_log_ = false;
  std::string kept_log_;
  std::array<bool, kStreams> prompt_shown_{};
  TailBuffer tail_;
  TracebackReader traceback_;
  WatchdogReader watchdog_;
  bool holds_tracebacks_;
  std::vector<HeldLine> held_;
  std::size_t held_bytes_ = 0;
  SteadyClock::time_point held_since_;
};

}  // namespace gyre::launch
