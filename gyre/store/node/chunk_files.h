#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <utility>

#include "gyre/base/thread_annotations.h"
#include "gyre/store/node/catalog.h"
#include "gyre/store/node/chunk_file.h"

namespace gyre::store::node {

/// The chunks of a folder, for reading. Those used most recently stay open, so that a small read need not open the file
/// and read its footer again. Thread-safe.
class ChunkFiles {
 public:
  /// A removed chunk that is still open keeps its space on the disk, 64 MiB at most: the reason for a limit. One that
  /// is not open costs an open, two reads of its footer and a close with each read.
  static constexpr std::size_t kMostOpen = 256;

  explicit ChunkFiles(ChunkFolder folder, std::size_t most_open = kMostOpen)
      : folder_(std::move(folder)), most_open_(most_open) {}

  /// Fills `into` from the chunk as its file is now, also where it was replaced since the last read; false where it is
  /// not there. A key always comes with the same `size_bytes`. Error as of ChunkFile; the next read then opens it anew.
  bool read(const ChunkKey& key, std::uint64_t size_bytes, std::uint64_t offset_bytes, std::span<std::byte> into)
      GYRE_EXCLUDES(mutex_);

 private:
  struct Entry {
    ChunkKey key;
    std::shared_ptr<const ChunkFile> file;
  };

  std::shared_ptr<const ChunkFile> open(const ChunkKey& key, std::uint64_t size_bytes) GYRE_EXCLUDES(mutex_);
  std::shared_ptr<const ChunkFile> find(const ChunkKey& key) GYRE_EXCLUDES(mutex_);
  void keep(const ChunkKey& key, std::shared_ptr<const ChunkFile> file) GYRE_EXCLUDES(mutex_);
  void forget(const ChunkKey& key) GYRE_EXCLUDES(mutex_);

  const ChunkFolder folder_;
  const std::size_t most_open_;
  Mutex mutex_;
  std::list<Entry> recent_ GYRE_GUARDED_BY(mutex_){};  ///< The one used last is the first.
};

}  // namespace gyre::store::node
