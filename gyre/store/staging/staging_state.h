#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/staging/manifest.h"

namespace gyre::store {

/// A piece of an object.
struct Piece {
  std::size_t entry = 0;
  std::uint32_t number = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t kept_bytes = 0;  ///< Of its beginning, which is on the disk already.
  std::uint32_t kept_crc32c = 0;
};

/// Objects of at most 64 MiB are one piece, larger ones pieces of 16 MiB. An empty object is one empty piece.
std::uint32_t piece_count(std::uint64_t size_bytes);
/// One of them, below piece_count().
Piece piece_of(std::size_t entry, std::uint64_t size_bytes, std::uint32_t number);
/// All of them.
std::vector<Piece> pieces_of(std::size_t entry, std::uint64_t size_bytes);

/// A piece, and its bytes: all but those that an earlier staging has kept.
struct Arrived {
  Piece piece;
  Bytes bytes;

  /// What is not on the disk yet.
  std::span<const std::byte> rest() const {
    return std::span(bytes).last(static_cast<std::size_t>(piece.size_bytes - piece.kept_bytes));
  }
};

/// Who does what in a staging: pieces go from those that wait through the readers to the workers. Bounds the memory of
/// what is under way. Thread-safe.
class StagingState {
 public:
  StagingState(std::size_t entries, std::uint64_t memory_bytes)
      : entries_(entries), free_bytes_(static_cast<std::int64_t>(memory_bytes)) {}

  /// An object, and its pieces that are not on the disk yet: one at least.
  void add(std::size_t entry, std::vector<Piece> missing) GYRE_EXCLUDES(mutex_);
  /// All objects were added: the readers may end when nothing waits.
  void seal() GYRE_EXCLUDES(mutex_);

  /// The next piece to read, its memory being set aside; nothing at the end, or when stopped.
  std::optional<Piece> next_piece(const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  /// Hands it to the workers.
  void arrived(Arrived arrived) GYRE_EXCLUDES(mutex_);
  /// The next piece to work on; nothing at the end, or when stopped.
  std::optional<Arrived> next_arrived(const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  /// Its memory is free again. True where it was the object's last one.
  bool finished(const Piece& piece) GYRE_EXCLUDES(mutex_);

  /// The object is complete.
  void complete(std::size_t entry) GYRE_EXCLUDES(mutex_);
  /// The object came damaged: true where it is now read a second time, from its first byte.
  bool again(std::size_t entry, std::uint64_t size_bytes) GYRE_EXCLUDES(mutex_);
  /// It will not be complete; its pieces that wait are dropped.
  void failed(std::size_t entry, const std::string& reason) GYRE_EXCLUDES(mutex_);
  bool has_failed(std::size_t entry) const GYRE_EXCLUDES(mutex_);
  /// A piece was given up: its memory is free again.
  void dropped(const Piece& piece) GYRE_EXCLUDES(mutex_);

  std::size_t completed() const GYRE_EXCLUDES(mutex_);
  std::vector<std::pair<std::size_t, std::string>> failures() const GYRE_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::size_t open_pieces = 0;  ///< Not yet worked on.
    bool failed = false;
    bool second_time = false;
  };

  bool all_done() const GYRE_REQUIRES(mutex_);
  void release(std::uint64_t bytes) GYRE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Entry> entries_ GYRE_GUARDED_BY(mutex_);
  std::deque<Piece> waiting_ GYRE_GUARDED_BY(mutex_);
  std::deque<Arrived> arrived_ GYRE_GUARDED_BY(mutex_);
  std::int64_t free_bytes_ GYRE_GUARDED_BY(mutex_);
  std::size_t under_way_ GYRE_GUARDED_BY(mutex_) = 0;  ///< Pieces that are read or worked on.
  std::size_t completed_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<std::size_t, std::string>> failures_ GYRE_GUARDED_BY(mutex_);
  bool sealed_ GYRE_GUARDED_BY(mutex_) = false;
};

}  // namespace gyre::store
