#pragma once

#include <cstdint>
#include <cstring>
#include <list>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/node/catalog.h"

namespace gyre::store::node {

/// The last chunks for which the disk had no room, in memory: a program reads a chunk in many small pieces.
/// Thread-safe.
class UnkeptChunks {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 20;

  void keep(const Piece& chunk, std::span<const std::byte> bytes) GYRE_EXCLUDES(mutex_) {
    Bytes copy(bytes.begin(), bytes.end());
    const MutexLock lock(mutex_);
    recent_.push_front({.entry = chunk.entry, .number = chunk.number, .bytes = std::move(copy)});
    bytes_ += bytes.size();
    while (bytes_ > kMostBytes) {
      bytes_ -= recent_.back().bytes.size();
      recent_.pop_back();
    }
  }

  /// False where it is not there.
  bool read(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (auto kept = recent_.begin(); kept != recent_.end(); ++kept) {
      if (kept->entry != chunk.entry || kept->number != chunk.number) continue;
      recent_.splice(recent_.begin(), recent_, kept);
      if (!into.empty()) std::memcpy(into.data(), kept->bytes.data() + offset_bytes, into.size());
      return true;
    }
    return false;
  }

 private:
  struct Kept {
    std::size_t entry;
    std::uint32_t number;
    Bytes bytes;
  };

  Mutex mutex_;
  std::list<Kept> recent_ GYRE_GUARDED_BY(mutex_);  ///< The one that was read last in front.
  std::uint64_t bytes_ GYRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace gyre::store::node
