#include "gyre/store/node/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::store::node {

namespace {

void put_text(ByteWriter& writer, const std::string& text) {
  writer.u32(static_cast<std::uint32_t>(text.size()));
  writer.text(text);
}

std::string get_text(ByteReader& reader) { return std::string(reader.text(reader.u32())); }

}  // namespace

std::string ChunkKey::hex() const {
  std::string digits;
  for (const std::byte byte : bytes) digits += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return digits;
}

Catalog::Catalog(Manifest manifest) : manifest_(std::move(manifest)) {
  const Bytes bytes = encode();
  const Sha256 digest = sha256(bytes);
  std::memcpy(&fingerprint_, digest.data(), sizeof(fingerprint_));
}

std::optional<std::size_t> Catalog::find(std::string_view name) const {
  const std::size_t found = manifest_.entries.lower_bound(name);
  if (found == manifest_.entries.size() || manifest_.entries[found].target != name) return std::nullopt;
  return found;
}

std::uint32_t Catalog::chunks_of(std::size_t entry) const {
  return piece_count(manifest_.entries[entry].object.size_bytes);
}

Piece Catalog::chunk(std::size_t entry, std::uint32_t number) const {
  if (entry >= manifest_.entries.size() || number >= chunks_of(entry)) {
    throw Error(ErrorCode::kProtocol, fmt::format("the data set has no chunk {} of entry {}", number, entry));
  }
  return piece_of(entry, manifest_.entries[entry].object.size_bytes, number);
}

Piece Catalog::chunk_at(std::size_t entry, std::uint64_t offset_bytes) const {
  const Piece first = chunk(entry, 0);
  return chunk(entry, first.size_bytes == 0 ? 0 : static_cast<std::uint32_t>(offset_bytes / first.size_bytes));
}

ChunkKey Catalog::key(const Piece& chunk) const {
  const ManifestEntry& entry = manifest_.entries[chunk.entry];
  ByteWriter writer;
  put_text(writer, manifest_.sources[entry.source]);
  put_text(writer, entry.object.name);
  put_text(writer, entry.object.version);
  writer.u64(entry.object.size_bytes);
  writer.u32(chunk.number);
  const Sha256 digest = sha256(writer.result());
  ChunkKey key;
  std::ranges::copy(std::span(digest).first(key.bytes.size()), key.bytes.begin());
  return key;
}

Bytes Catalog::encode() const {
  ByteWriter writer;
  writer.u32(static_cast<std::uint32_t>(manifest_.sources.size()));
  for (const std::string& source : manifest_.sources) put_text(writer, source);
  writer.u64(manifest_.entries.size());
  for (const ManifestEntry& entry : manifest_.entries) {
    writer.u32(static_cast<std::uint32_t>(entry.source));
    writer.u64(entry.object.size_bytes);
    put_text(writer, entry.object.name);
    put_text(writer, entry.object.version);
    put_text(writer, entry.object.encoding);
    writer.u8(entry.object.md5 ? 1 : 0);
    if (entry.object.md5) writer.bytes(*entry.object.md5);
    put_text(writer, entry.target);
  }
  return writer.take();
}

Catalog Catalog::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "the catalog of a store");
  Manifest manifest;
  for (std::uint32_t count = reader.u32(); count > 0; --count) manifest.sources.push_back(get_text(reader));
  for (std::uint64_t count = reader.u64(); count > 0; --count) {
    ManifestEntry entry{.source = reader.u32()};
    entry.object.size_bytes = reader.u64();
    entry.object.name = get_text(reader);
    entry.object.version = get_text(reader);
    entry.object.encoding = get_text(reader);
    if (reader.u8() != 0) std::ranges::copy(reader.bytes(entry.object.md5.emplace().size()), entry.object.md5->begin());
    entry.target = get_text(reader);
    if (entry.source >= manifest.sources.size()) {
      throw Error(ErrorCode::kCorruptData, "the catalog of a store names a source that it does not have");
    }
    manifest.entries.push_back(entry);
  }
  manifest.entries.shrink_to_fit();
  return Catalog(std::move(manifest));
}

}  // namespace gyre::store::node
