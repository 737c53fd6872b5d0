#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data::internal {

/// What was found out about a file by reading it.
class FileContents {
 public:
  explicit FileContents(std::shared_ptr<MemoryBudget> budget) : memory(budget), budget_(std::move(budget)) {}

  ScratchBuffer memory;
  std::optional<std::span<const std::byte>> bytes;  ///< All of it, in `memory`, decompressed; else only places().

  /// Where its records lie.
  const std::vector<RecordPlace>& places() const { return places_; }
  /// Error(kResourceExhausted) where the budget does not hold them.
  void set_places(std::vector<RecordPlace> places);
  std::uint64_t size_bytes() const { return memory.capacity_bytes() + places_.capacity() * sizeof(RecordPlace); }
  /// Of another file, in the same memory.
  void forget();

 private:
  std::shared_ptr<MemoryBudget> budget_;
  std::vector<RecordPlace> places_;
  std::optional<MemoryReservation> reserved_;
};

/// The contents or indexes of the files that are read from most recently, for all threads of a loader: a file that
/// several need is read once, by the first. Those that nobody holds leave, the least recently used one first, when
/// there is no room for another one. Thread-safe; made by std::make_shared.
class ContentsCache : public std::enable_shared_from_this<ContentsCache> {
 public:
  /// Takes about `most_bytes`, of `budget` where there is one. What readers hold may take more.
  ContentsCache(std::shared_ptr<MemoryBudget> budget, std::uint64_t most_bytes)
      : budget_(std::move(budget)), most_bytes_(most_bytes) {}

  using Load = std::function<void(FileContents&)>;
  /// What `load` reads, if it is not there; held as long as the caller keeps it. Errors are those of `load`: damage is
  /// remembered, and fails again; kResourceExhausted comes when no more memory can be given back. Where another thread
  /// reads the file, calls `meanwhile` before it waits.
  std::shared_ptr<const FileContents> get(std::size_t file, const Load& load, const std::function<void()>& meanwhile)
      GYRE_EXCLUDES(mutex_);

  /// Reads a file that will be asked for soon, unless it is there, or another thread reads it: false then. Its errors
  /// are thrown when it is asked for.
  bool read_ahead(std::size_t file, const Load& load) GYRE_EXCLUDES(mutex_);

  /// Whether a file is there, or a thread reads it, as of now.
  bool knows(std::size_t file) GYRE_EXCLUDES(mutex_);
  /// Calls `announce`, which is short, for a file that will be asked for soon, unless it is known. That is one
  /// step: what is announced is read afterwards, and not by a thread that had just done so before.
  void announce(std::size_t file, const std::function<void()>& announce) GYRE_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<FileContents> contents;  ///< Null while it is read …
    std::optional<Error> damage;             ///< … or where it cannot be.
    std::list<std::size_t>::iterator use{};  ///< In uses_, where there are contents.
  };

  /// For a caller. It is released under the mutex, because memory that is not referenced is used again.
  std::shared_ptr<const FileContents> held(std::shared_ptr<FileContents> contents) GYRE_REQUIRES(mutex_);
  enum class Shortage : std::uint8_t { kWait, kFail };
  /// Of a thread that is counted in loading_.
  std::shared_ptr<const FileContents> read(std::size_t file, const Load& load, Shortage shortage) GYRE_EXCLUDES(mutex_);
  /// Where memory is short it waits until other threads let go of theirs, and no further one begins to read; then
  /// `alone` is true, and the thread no longer counted in loading_.
  std::shared_ptr<FileContents> read_with_room(const Load& load, Shortage shortage, bool& alone) GYRE_EXCLUDES(mutex_);
  void become_alone() GYRE_REQUIRES(mutex_);
  /// Memory of a file that nobody holds any more; null where no other thread has any.
  std::shared_ptr<FileContents> wait_for_memory() GYRE_REQUIRES(mutex_);
  /// Drops what nobody holds until one more file of the usual size has room; returns memory that can be used again.
  std::shared_ptr<FileContents> make_room() GYRE_EXCLUDES(mutex_);
  /// The least recently used one that nobody holds; null where all are held.
  std::shared_ptr<FileContents> evict() GYRE_REQUIRES(mutex_);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::uint64_t most_bytes_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::map<std::size_t, Entry> entries_ GYRE_GUARDED_BY(mutex_);
  std::list<std::size_t> uses_ GYRE_GUARDED_BY(mutex_);  // The files with contents, the least recently used one first.
  std::size_t loading_ GYRE_GUARDED_BY(mutex_) = 0;      // Threads that read …
  bool alone_ GYRE_GUARDED_BY(mutex_) = false;           // … and whether one needs that no other does.
  std::uint64_t used_bytes_ GYRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t usual_bytes_ GYRE_GUARDED_BY(mutex_) = 0;  // Of the largest file so far.
};

}  // namespace gyre::data::internal
