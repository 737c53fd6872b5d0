#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/store/staging/manifest.h"
#include "gyre/store/staging/staging_state.h"

namespace gyre::store::node {

/// Names the bytes of one chunk: of an object of one source, in one version.
struct ChunkKey {
  std::array<std::byte, 16> bytes{};

  std::string hex() const;
  friend auto operator<=>(const ChunkKey&, const ChunkKey&) = default;
};

/// The data set that a store holds: what is in it, and how it is divided into chunks (pieces_of()). Immutable.
class Catalog {
 public:
  /// None of the objects is decompressed.
  explicit Catalog(Manifest manifest);

  const Manifest& manifest() const { return manifest_; }
  /// Nodes with the same one mean the same bytes by an entry's number.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The entry of that target; nothing where there is none.
  std::optional<std::size_t> find(std::string_view name) const;

  std::uint32_t chunks_of(std::size_t entry) const;
  /// Error(kProtocol) for a chunk that there is not.
  Piece chunk(std::size_t entry, std::uint32_t number) const;
  /// The chunk with the byte at `offset_bytes`, which is within the object.
  Piece chunk_at(std::size_t entry, std::uint64_t offset_bytes) const;
  ChunkKey key(const Piece& chunk) const;

  Bytes encode() const;
  /// Error(kCorruptData).
  static Catalog decode(std::span<const std::byte> bytes);

 private:
  Manifest manifest_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace gyre::store::node
