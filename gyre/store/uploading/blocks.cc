#include "gyre/store/uploading/blocks.h"

#include <algorithm>
#include <utility>

#include "gyre/data/formats/inflate.h"

namespace gyre::store {

namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kLeastBlockBytes = 16 * kMiB;
constexpr std::uint64_t kMostBlocks = 9'000;  // Random bytes grow a little where they are compressed.
/// Of one gzip member: readers decompress members one after the other.
constexpr std::uint64_t kMemberBytes = 16 * kMiB;

}  // namespace

std::uint64_t Blocks::block_bytes(std::uint64_t size_bytes) {
  const std::uint64_t needed = (size_bytes / kMostBlocks + kMiB) / kMiB * kMiB;
  return std::max(kLeastBlockBytes, needed);
}

Blocks::Blocks(std::uint64_t size_bytes, bool compress, Read read)
    : size_bytes_(size_bytes), block_bytes_(block_bytes(size_bytes)), compress_(compress), read_(std::move(read)) {}

void Blocks::fill() {
  const std::uint64_t most = compress_ ? kMemberBytes : block_bytes_;
  Bytes bytes(std::min(most, size_bytes_ - read_bytes_));
  if (!bytes.empty()) read_(read_bytes_, bytes);
  read_bytes_ += bytes.size();
  if (compress_) bytes = data::deflate(data::Compression::kGzip, bytes);
  if (ready_.empty()) {
    ready_ = std::move(bytes);
  } else {
    ready_.insert(ready_.end(), bytes.begin(), bytes.end());
  }
}

std::optional<Bytes> Blocks::next() {
  if (std::exchange(first_, false)) {
    fill();
  } else if (read_bytes_ == size_bytes_ && ready_.empty()) {
    return std::nullopt;
  }
  while (ready_.size() < block_bytes_ && read_bytes_ < size_bytes_) fill();
  if (ready_.size() <= block_bytes_) return std::exchange(ready_, {});
  const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(block_bytes_);
  Bytes block(ready_.begin(), end);
  ready_.erase(ready_.begin(), end);
  return block;
}

}  // namespace gyre::store
