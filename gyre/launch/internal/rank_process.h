#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"
#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/internal/output.h"
#include "gyre/launch/internal/tail_buffer.h"

namespace gyre::launch {

constexpr int kBothStreams = 3;

/// One rank as its launcher sees it: the process, what it writes, and how it ended. Not thread-safe.
class RankProcess {
 public:
  /// Starts it. `spawn`'s stdout and stderr are set here. `log` may be empty. `shown`: 1 stdout, 2 stderr, 3 both go to
  /// the output as well. SpawnError, Error(kResourceExhausted).
  RankProcess(int rank, SpawnOptions spawn, UniqueFd log, int shown);

  int rank() const { return rank_; }
  const Process& process() const { return process_; }
  Process& process() { return process_; }
  /// -1 once the stream has ended.
  int output_fd(Stream stream) const { return streams_[static_cast<std::size_t>(stream)].fd.get(); }

  /// Moves what can be read now, at most one buffer of it, to the log file, the tail and `output`. False when there is
  /// nothing now. Closes the stream at its end.
  bool read_output(Stream stream, Output& output);
  /// Nothing more will be read: gives unfinished lines away as they are.
  void finish_output(Output& output);

  void ended(const ExitStatus& status, SteadyClock::time_point when) {
    status_ = status;
    ended_at_ = when;
  }
  bool running() const { return !status_.has_value(); }
  const std::optional<ExitStatus>& status() const { return status_; }
  SteadyClock::time_point ended_at() const { return ended_at_; }

  const TailBuffer& tail() const { return tail_; }
  /// Why the log file has stopped growing, if it has; said once.
  std::string take_log_failure() { return std::exchange(log_failure_, {}); }

 private:
  struct Pipe {
    UniqueFd fd;
    LineSplitter lines;
  };
  struct Ends;

  RankProcess(int rank, SpawnOptions& spawn, UniqueFd log, int shown, Ends ends);
  bool is_shown(Stream stream) const { return (shown_ & (1 << static_cast<int>(stream))) != 0; }
  LineSplitter::Sink sink_for(Stream stream, Output& output);
  void write_log(std::string_view text);
  Pipe& pipe(Stream stream) { return streams_[static_cast<std::size_t>(stream)]; }

  int rank_;
  std::array<Pipe, 2> streams_;
  Process process_;
  UniqueFd log_;
  int shown_;
  std::string log_pending_;
  std::string log_failure_;
  TailBuffer tail_;
  std::optional<ExitStatus> status_;
  SteadyClock::time_point ended_at_;
};

}  // namespace gyre::launch
