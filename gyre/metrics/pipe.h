#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/metrics/sample.h"

// From a rank to its launcher: a pipe that does not block, in which each write is one block of a metrics file, complete
// in itself (docs/adr/0126).

namespace gyre::metrics {

struct Value {
  std::string_view name;
  double value = 0;
};

/// A rank's end. Thread-safe; nothing waits but flush(). What does not fit into the pipe waits in memory for the next
/// call, up to kMostWaitingBytes; what comes then is dropped, and a sample of kDroppedName says how much that was so
/// far.
class Logger {
 public:
  static constexpr std::size_t kMostWaitingBytes = std::size_t{1} << 20;
  static constexpr std::string_view kDroppedName = "gyre/dropped_samples";

  /// A copy of the descriptor that the launcher left this process; null if it is no such pipe (any more: a program
  /// between the launcher and us may have closed it, and the number may be another file's now).
  static std::shared_ptr<Logger> inherited(int descriptor, int rank);

  Logger(UniqueFd write_end, int rank) : write_end_(std::move(write_end)), rank_(rank) {}
  /// Waits for the launcher, a second at most, with what is in memory.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  int rank() const { return rank_; }
  /// Of the program. Error(kInvalidArgument) for a name that it cannot use; nothing is logged then.
  void log(std::span<const Value> values, std::int64_t step);
  /// Gyre's own, whose names begin with kReservedPrefix.
  void log_own(std::span<const Value> values, std::int64_t step);

  /// Returns when nothing is left in memory; false at the deadline, or when the launcher has gone.
  bool flush(Deadline deadline);

 private:
  void send(std::span<const Value> values, std::int64_t step) GYRE_EXCLUDES(mutex_);
  void send_blocks(std::span<const Sample> samples) GYRE_REQUIRES(mutex_);
  /// Says how much was dropped, once there is room.
  void send_dropped() GYRE_REQUIRES(mutex_);
  /// False where the pipe has no room.
  bool write_block(const Bytes& block) GYRE_REQUIRES(mutex_);
  bool write_waiting() GYRE_REQUIRES(mutex_);
  void forget_what_a_parent_sends() GYRE_REQUIRES(mutex_);

  const UniqueFd write_end_;
  const int rank_;
  Mutex mutex_;
  std::deque<Bytes> waiting_ GYRE_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ GYRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ GYRE_GUARDED_BY(mutex_) = 0;  ///< Not said yet.
  std::uint64_t all_dropped_ GYRE_GUARDED_BY(mutex_) = 0;
  std::int64_t latest_step_ GYRE_GUARDED_BY(mutex_) = 0;
  bool launcher_has_gone_ GYRE_GUARDED_BY(mutex_) = false;
  int process_ GYRE_GUARDED_BY(mutex_) = 0;  ///< The one that has filled `waiting_`.
};

/// Both ends of such a pipe, the launcher's. Error(kIo, kResourceExhausted).
struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
Pipe make_pipe();

/// Puts together what the launcher reads from the pipe.
class BlockStream {
 public:
  /// Calls `give` with the samples of each block that is complete now. Error(kCorruptData) if something else than ranks
  /// has written: nothing more can be read from this pipe.
  void take(std::span<const std::byte> bytes, const std::function<void(std::span<const Sample>)>& give);

 private:
  Bytes held_;
};

/// The samples as blocks that are complete in themselves, for a BlockStream elsewhere.
Bytes blocks_of(std::span<const Sample> samples);

}  // namespace gyre::metrics
