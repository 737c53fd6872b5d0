#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "gyre/base/error.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/data/scratch_buffer.h"
#include "gyre/store/staging/manifest.h"
#include "gyre/store/staging/stage_folder.h"
#include "gyre/store/staging/stage_log.h"
#include "gyre/store/staging/staging_state.h"

namespace gyre::store {

/// What was checked and written; shared by all writers.
struct WrittenCounts {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> md5{0};
  std::atomic<std::uint64_t> gzip{0};
};

/// An object that was to be decompressed is not compressed: reading it again is no use.
class NotCompressed : public Error {
 public:
  explicit NotCompressed(const std::string& message) : Error(ErrorCode::kCorruptData, message) {}
};

/// Turns what arrived of objects into their files: checks, decompresses, writes, writes down. Not thread-safe: one per
/// thread.
class ObjectWriter {
 public:
  /// Objects that have up to `most_in_memory` bytes when they are decompressed are so in memory; larger ones go through
  /// the disk.
  ObjectWriter(const Manifest& manifest, const StageFolder& folder, StageLog& log, WrittenCounts& counts,
               std::uint64_t most_in_memory)
      : manifest_(manifest), folder_(folder), log_(log), counts_(counts), most_in_memory_(most_in_memory) {}

  /// An object of one piece becomes its file, of which the beginning may be kept already. Error(kCorruptData) where it
  /// is not what the source has; NotCompressed.
  void write_whole(const ManifestEntry& entry, const Piece& piece, std::span<const std::byte> stored);

  /// Keeps what has arrived of a piece that is still under way, behind what is kept already.
  void keep_beginning(const ManifestEntry& entry, Piece& piece, std::span<const std::byte> stored);
  /// Keeps a piece of an object: `stored` is what is not kept yet.
  void keep_piece(const ManifestEntry& entry, const Piece& piece, std::span<const std::byte> stored);
  /// All pieces of a large object are there: it becomes its file. Error as write_whole().
  void assemble(const ManifestEntry& entry);

 private:
  void write_stored(const ManifestEntry& entry, const Piece& piece, std::span<const std::byte> stored);
  void check_md5(const ManifestEntry& entry, const Md5& found);
  /// Decompressed, in memory; nothing where it is too large for that.
  std::optional<std::span<const std::byte>> inflate(const ManifestEntry& entry, std::span<const std::byte> stored);
  void inflate_part(const ManifestEntry& entry);
  void publish(const ManifestEntry& entry, const std::filesystem::path& part, std::uint32_t crc32c);
  /// Throws NotCompressed where what is to be decompressed begins otherwise than its format does.
  void check_beginning(const ManifestEntry& entry, std::span<const std::byte> first) const;
  std::string describe(const ManifestEntry& entry) const;

  const Manifest& manifest_;
  const StageFolder& folder_;
  StageLog& log_;
  WrittenCounts& counts_;
  const std::uint64_t most_in_memory_;
  data::Inflater inflater_;
  data::ScratchBuffer buffer_;
};

}  // namespace gyre::store
