#include "gyre/store/node/chunk_files.h"

#include <algorithm>
#include <optional>

#include "gyre/base/error.h"

namespace gyre::store::node {

bool ChunkFiles::read(const ChunkKey& key, std::uint64_t size_bytes, std::uint64_t offset_bytes,
                      std::span<std::byte> into) {
  const auto file = open(key, size_bytes);
  if (file == nullptr) return false;
  try {
    file->read(offset_bytes, into);
  } catch (const Error&) {
    forget(key);
    throw;
  }
  return true;
}

std::shared_ptr<const ChunkFile> ChunkFiles::open(const ChunkKey& key, std::uint64_t size_bytes) {
  if (auto file = find(key); file != nullptr) {
    if (file->is_in_place()) return file;
    forget(key);
  }
  std::optional<ChunkFile> opened = ChunkFile::open(folder_, key, size_bytes);
  if (!opened) return nullptr;
  auto file = std::make_shared<const ChunkFile>(std::move(*opened));
  keep(key, file);
  return file;
}

std::shared_ptr<const ChunkFile> ChunkFiles::find(const ChunkKey& key) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(recent_, key, &Entry::key);
  if (found == recent_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found);
  return found->file;
}

void ChunkFiles::keep(const ChunkKey& key, std::shared_ptr<const ChunkFile> file) {
  const MutexLock lock(mutex_);
  // Another thread may have opened it meanwhile.
  std::erase_if(recent_, [&](const Entry& entry) { return entry.key == key; });
  recent_.push_front({.key = key, .file = std::move(file)});
  if (recent_.size() > most_open_) recent_.pop_back();
}

void ChunkFiles::forget(const ChunkKey& key) {
  const MutexLock lock(mutex_);
  std::erase_if(recent_, [&](const Entry& entry) { return entry.key == key; });
}

}  // namespace gyre::store::node
