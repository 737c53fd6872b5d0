#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/internal/parquet_file.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data::internal {

/// The columns that are read, of one row group; each in parts.
struct RowGroup {
  std::vector<std::vector<ArrowPart>> columns;
};

/// File and number within it.
struct RowGroupName {
  std::size_t file = 0;
  std::uint64_t row_group = 0;

  auto operator<=>(const RowGroupName&) const = default;
};

/// Row groups in memory, for all threads of a loader: one that several need is read once, by the first; the least
/// recently used ones leave when others need their memory. Thread-safe.
class RowGroupCache : private ArrowMemory::Grant {
 public:
  /// Takes `most_bytes` at most, also of `budget` where there is one.
  RowGroupCache(const parquet::Interface& arrow, std::shared_ptr<MemoryBudget> budget, std::uint64_t most_bytes);
  ~RowGroupCache() override = default;
  RowGroupCache(const RowGroupCache&) = delete;
  RowGroupCache& operator=(const RowGroupCache&) = delete;

  using Load = std::function<RowGroup()>;
  /// Calls `use` with the row group, which `load` reads, into memory(), where it is not there. What is damaged is
  /// remembered, and fails again. Where memory is short, `load` is called again when no other thread reads. Errors are
  /// those of `load`; kResourceExhausted where the row group alone is too large. Where another thread reads it, calls
  /// `meanwhile` before it waits.
  void with(const RowGroupName& name, const Load& load, const std::function<void(const RowGroup&)>& use,
            const std::function<void()>& meanwhile = {}) GYRE_EXCLUDES(mutex_);

  /// Reads a row group that will be asked for soon, unless it is there, or another thread reads it, or memory was too
  /// short for that not long ago: false then. Its errors are thrown when it is asked for.
  bool read_ahead(const RowGroupName& name, const Load& load) GYRE_EXCLUDES(mutex_);

  /// Calls `announce`, which is short, for a row group that will be asked for soon, unless it is there, or a thread
  /// reads it. That is one step: what is announced is read afterwards, and not by a thread that had just done so
  /// before.
  void announce(const RowGroupName& name, const std::function<void()>& announce) GYRE_EXCLUDES(mutex_);

  ArrowMemory& memory() { return memory_; }
  std::uint64_t most_bytes() const { return most_bytes_; }

 private:
  struct Entry {
    std::optional<RowGroup> group;  ///< Nothing while it is read …
    std::optional<Error> damage;    ///< … or where it cannot be.
    std::uint64_t users = 0;
    std::uint64_t last_use = 0;
    bool unused = false;  ///< It was read ahead.
  };

  bool reserve(std::uint64_t bytes) override GYRE_EXCLUDES(mutex_);
  void release(std::uint64_t bytes) override;
  bool try_reserve(std::uint64_t bytes);
  /// Gives back the memory of one row group that nobody uses; false where there is none. A thread that reads ahead does
  /// not take that of others that were read ahead.
  bool evict() GYRE_EXCLUDES(mutex_);
  /// The entry, ready and with one more user.
  std::shared_ptr<Entry> acquire(const RowGroupName& name, const Load& load, const std::function<void()>& meanwhile)
      GYRE_EXCLUDES(mutex_);
  /// Reads it, and counts the caller as its user.
  void fill(Entry& entry, const Load& load) GYRE_EXCLUDES(mutex_);
  void add_user(Entry& entry) GYRE_REQUIRES(mutex_);
  RowGroup load_alone(const Load& load) GYRE_EXCLUDES(mutex_);
  /// Memory was too short for it. It is tried again later, each time after twice as many loads: what an epoch that was
  /// ended early has left behind goes with the next one.
  void pause_reading_ahead() GYRE_REQUIRES(mutex_);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::uint64_t most_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
  ArrowMemory memory_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::map<RowGroupName, std::shared_ptr<Entry>> entries_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t uses_ GYRE_GUARDED_BY(mutex_) = 0;        // Ever; tells which use was the last.
  std::uint64_t users_ GYRE_GUARDED_BY(mutex_) = 0;       // Of all entries, now.
  std::uint64_t loading_ GYRE_GUARDED_BY(mutex_) = 0;     // Threads that read.
  std::uint64_t alone_ GYRE_GUARDED_BY(mutex_) = 0;       // Threads that want to read while no other does.
  std::uint64_t loads_ GYRE_GUARDED_BY(mutex_) = 0;       // Row groups that were read because they were asked for.
  std::uint64_t ahead_from_ GYRE_GUARDED_BY(mutex_) = 0;  // How many of these there are when reading ahead goes on.
  std::uint64_t pause_ GYRE_GUARDED_BY(mutex_) = 8;
};

}  // namespace gyre::data::internal
