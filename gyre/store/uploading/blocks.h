#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// The bytes of one object as they are put, block by block: as they are, or compressed. The same object gives the same
/// blocks. Not thread-safe.
class Blocks {
 public:
  /// Fills a span with the object's bytes from an offset on, or throws.
  using Read = std::function<void(std::uint64_t offset_bytes, std::span<std::byte> into)>;

  Blocks(std::uint64_t size_bytes, bool compress, Read read);

  /// Of the same length but for the last one, which may be shorter; an empty object has one empty block (or one of an
  /// empty gzip member). Nothing at the end.
  std::optional<Bytes> next();

  /// Objects of up to 10,000 blocks can be put everywhere (S3).
  static std::uint64_t block_bytes(std::uint64_t size_bytes);

 private:
  void fill();

  const std::uint64_t size_bytes_;
  const std::uint64_t block_bytes_;
  const bool compress_;
  const Read read_;
  std::uint64_t read_bytes_ = 0;
  Bytes ready_{};  ///< And not yet given out.
  bool first_ = true;
};

}  // namespace gyre::store
