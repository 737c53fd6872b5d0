#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/metrics/pipe.h"
#include "gyre/metrics/sample.h"

namespace gyre::launch {

/// Processor time and memory of one process, of all its threads; nothing when there is none, or no /proc.
struct ProcessUsage {
  double cpu_seconds = 0;
  double memory_bytes = 0;  ///< Resident.
};
std::optional<ProcessUsage> read_usage(pid_t process);

/// Takes what one start of this host's ranks logs, and every few seconds adds what each of them uses:
/// gyre/cpu_cores and gyre/memory_bytes, at the step that a rank has logged last. Not thread-safe; nothing waits.
class MetricsIntake {
 public:
  using Sink = std::function<void(std::span<const metrics::Sample>)>;

  explicit MetricsIntake(Sink sink);

  /// What the ranks inherit.
  int rank_end() const { return pipe_.write_end.get(); }
  void started(int rank, pid_t process);
  void ended(int rank) { watched_.erase(rank); }

  /// Readable when ranks have logged; negative where none will be heard any more.
  int fd() const { return pipe_.read_end.get(); }
  /// When advance() has something to do even so.
  std::optional<SteadyClock::time_point> due_at() const;
  void advance();
  /// Sentences that the person should read, each once; mostly empty.
  std::string take_words() { return std::exchange(words_, {}); }

 private:
  struct Watched {
    pid_t process = 0;
    double cpu_seconds = 0;
    SteadyClock::time_point since;
  };

  void read_pipe();
  void look_at_ranks(SteadyClock::time_point now);

  Sink sink_;
  metrics::Pipe pipe_;
  metrics::BlockStream stream_;
  std::map<int, Watched> watched_;  ///< By rank.
  SteadyClock::time_point look_at_;
  std::int64_t latest_step_ = 0;
  bool can_look_;
  std::string words_;
};

}  // namespace gyre::launch
