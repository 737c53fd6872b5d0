#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data {

enum class Compression { kNone, kGzip, kZlib };

/// What the first bytes of a file look like (two are enough); names are not trusted.
Compression sniff_compression(std::span<const std::byte> first);

/// Decompresses whole objects. Not thread-safe: one per thread. Source of the formats: RFC 1950, RFC 1952.
class Inflater {
 public:
  Inflater();
  ~Inflater();
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) noexcept;

  /// The contents of `stored`, in memory of `buffer`: of gzip all members one after the other (zero bytes behind the
  /// last one are padding), each with its CRC-32 and its length checked. Errors name `name`, and the member and its
  /// offset: kCorruptData; kResourceExhausted where the contents are longer than `most_bytes`, which nothing in
  /// `stored` can make us allocate in vain.
  std::span<const std::byte> inflate(Compression compression, std::span<const std::byte> stored,
                                     std::uint64_t most_bytes, std::string_view name, ScratchBuffer& buffer);

 private:
  struct Release;
  class Output;

  void inflate_member(Compression compression, std::span<const std::byte>& left, Output& output) const;

  std::unique_ptr<void, void (*)(void*)> decompressor_;
  std::uint64_t zlib_ratio_ = 4;  ///< A guess; that of the last object, for a set's files are alike.
};

/// `contents` as one member. Level 1 (fast) to 12 (small); kNone returns a copy.
Bytes deflate(Compression compression, std::span<const std::byte> contents, int level = 6);

}  // namespace gyre::data
