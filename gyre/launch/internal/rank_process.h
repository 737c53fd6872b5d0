#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"
#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// One rank as its RankSet sees it: the process, the pipes through which it writes, and how it ended. Not thread-safe.
class RankProcess {
 public:
  /// Starts it. `spawn`'s stdout and stderr are pipes to here where they are negative. SpawnError,
  /// Error(kResourceExhausted).
  RankProcess(int rank, SpawnOptions spawn);

  int rank() const { return rank_; }
  const Process& process() const { return process_; }
  Process& process() { return process_; }
  /// Negative where there is no pipe, or no longer one.
  int output_fd(Stream stream) const { return pipes_[static_cast<std::size_t>(stream)].get(); }

  /// Gives `events` what can be read now, at most one buffer of it. False when there is nothing now. Closes the pipe at
  /// its end.
  bool read_output(Stream stream, RankEvents& events);
  /// Nothing more will be read: closes the pipes, and says so.
  void finish_output(RankEvents& events);

  void ended(const ExitStatus& status, SteadyClock::time_point when) {
    status_ = status;
    ended_at_ = when;
  }
  bool running() const { return !status_.has_value(); }
  const std::optional<ExitStatus>& status() const { return status_; }
  SteadyClock::time_point ended_at() const { return ended_at_; }

 private:
  struct Ends;

  RankProcess(int rank, SpawnOptions& spawn, std::array<Ends, kStreams> ends);

  int rank_;
  std::array<UniqueFd, kStreams> pipes_;
  Process process_;
  std::optional<ExitStatus> status_;
  SteadyClock::time_point ended_at_;
};

}  // namespace gyre::launch
