#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/base/trace_file.h"

namespace gyre {

/// Something that is over when it is written down, such as a wait for data.
struct PastPhase {
  std::string_view name;
  SteadyClock::time_point began;
  std::chrono::nanoseconds lasted{0};
  std::string detail{};  ///< Shown with it; may be empty.
};

/// Writes what happens to each tensor as a Chrome trace (chrome://tracing, Perfetto): one row per tensor, with the
/// phases NEGOTIATE_ALLREDUCE, QUEUE, MEMCPY_IN_FUSION_BUFFER, … that Horovod's users know. Names of the form
/// "collective 17 of GROUP" never come again; they share the row GROUP, those under way at the same time in lines below
/// each other.
///
/// The file is a valid JSON array after every write, so also when the process is killed: a batch of events overwrites
/// the closing bracket and brings its own. Costs one atomic load per event while stopped. Thread-safe.
class Timeline {
 public:
  explicit Timeline(Logger logger) : logger_(std::move(logger)) {}
  ~Timeline() { stop(); }

  /// Opens (and empties) `path`. Error when it cannot be written. Replaces a timeline that is running. `most_bytes`:
  /// it ends when its file has so many; 0: any number.
  void start(const std::filesystem::path& path, bool mark_cycles, std::int64_t most_bytes = 0);
  /// Writes what is queued and closes the file. Idempotent.
  void stop();
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  /// A phase of a tensor's life begins; phases of one tensor may nest.
  void begin(std::string_view tensor, std::string_view phase);
  void end(std::string_view tensor);
  /// A moment in a tensor's life, such as a rank's announcement.
  void instant(std::string_view tensor, std::string_view what);
  /// A phase in a row of any name. Those of one row follow each other, or one lies within the other. What was before
  /// start() is left out.
  void add(std::string_view row, const PastPhase& phase) GYRE_EXCLUDES(mutex_);
  /// CYCLE_START, when asked for.
  void mark_cycle();

 private:
  void stop_running() GYRE_REQUIRES(control_mutex_);
  void append(std::string_view tensor, char phase, std::string_view name) GYRE_EXCLUDES(mutex_);
  /// Whether one more event may wait for the disk; counts it as dropped if not.
  bool has_room() GYRE_REQUIRES(mutex_);
  int row_of(std::string_view row, std::int64_t now_us) GYRE_REQUIRES(mutex_);
  int line_of(std::string_view tensor, std::string_view row, char phase) GYRE_REQUIRES(mutex_);
  void write_loop();
  void write_events(const std::string& events);

  const Logger logger_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> mark_cycles_{false};

  Mutex control_mutex_;  // start() and stop() exclude each other.
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<std::string> queue_ GYRE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> rows_ GYRE_GUARDED_BY(mutex_);
  /// A collective of a group, and the line that it has in the group's row until it has ended.
  struct UnderWay {
    int line;
    int open_phases;
  };
  std::unordered_map<std::string, UnderWay> under_way_ GYRE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::vector<bool>> lines_ GYRE_GUARDED_BY(mutex_);  // By row: those that are taken.
  std::uint64_t dropped_ GYRE_GUARDED_BY(mutex_) = 0;
  bool stopping_ GYRE_GUARDED_BY(mutex_) = false;
  SteadyClock::time_point started_ GYRE_GUARDED_BY(mutex_);

  std::optional<TraceFile> file_;  // The writer thread's, while it runs.
  std::int64_t most_bytes_ = 0;    // As file_.
  std::thread writer_;
};

/// One that runs; null where `path` is empty. Errors are those of start().
std::shared_ptr<Timeline> start_timeline(const std::filesystem::path& path, Logger logger);

}  // namespace gyre
