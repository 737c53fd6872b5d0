#include "gyre/store/staging/object_writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/readable_file.h"
#include "gyre/store/sources/md5.h"
#include "gyre/store/staging/inflation.h"

namespace gyre::store {

namespace {

using data::Compression;

constexpr std::size_t kPieceBytes = 4 << 20;
/// Of compressed data: enough to tell their format.
constexpr std::size_t kFirstBytes = 2;

struct FileSums {
  std::optional<Md5> md5{};
  std::uint32_t crc32c = 0;
};

/// `with_md5`: it takes more time than everything else that is done with a byte.
FileSums sums_of(const std::filesystem::path& path, bool with_md5) {
  const auto file = data::open_local_file(path.string());
  Bytes piece(kPieceBytes);
  Md5Sum md5;
  FileSums sums{};
  for (std::uint64_t done = 0; done < file->size_bytes();) {
    const auto into = std::span(piece).first(std::min<std::uint64_t>(piece.size(), file->size_bytes() - done));
    file->read_at(done, into);
    if (with_md5) md5.add(into);
    sums.crc32c = crc32c(into, sums.crc32c);
    done += into.size();
  }
  if (with_md5) sums.md5 = md5.result();
  return sums;
}

std::string hex_of(const Md5& md5) {
  std::string text;
  for (const std::byte one : md5) text += fmt::format("{:02x}", std::to_integer<unsigned>(one));
  return text;
}

}  // namespace

std::string ObjectWriter::describe(const ManifestEntry& entry) const {
  return fmt::format("{} of {}", entry.object.name, manifest_.sources[entry.source]);
}

void ObjectWriter::check_beginning(const ManifestEntry& entry, std::span<const std::byte> first) const {
  if (data::sniff_compression(first) == entry.compression) return;
  std::string found = first.empty() ? "it is empty" : "it begins with";
  for (const std::byte one : first.first(std::min(first.size(), kFirstBytes)))
    found += fmt::format(" {:02x}", std::to_integer<unsigned>(one));
  const bool by_name = entry.object.encoding.empty();
  throw NotCompressed(
      fmt::format("{} is not {} data, though {} says so: {}. To take it as it is, {}", describe(entry),
                  entry.compression == Compression::kGzip ? "gzip" : "zlib",
                  by_name ? "its name" : fmt::format("its Content-Encoding ({})", entry.object.encoding), found,
                  by_name ? "do not decompress by suffix" : "do not decompress"));
}

void ObjectWriter::check_md5(const ManifestEntry& entry, const Md5& found) {
  if (found == *entry.object.md5) {
    ++counts_.md5;
    return;
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("{} is damaged: its MD5 is {}, and the source has {}",
                                                   describe(entry), hex_of(found), hex_of(*entry.object.md5)));
}

std::optional<std::span<const std::byte>> ObjectWriter::inflate(const ManifestEntry& entry,
                                                                std::span<const std::byte> stored) {
  try {
    return inflater_.inflate(entry.compression, stored, most_in_memory_, describe(entry), buffer_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) throw;
    return std::nullopt;
  }
}

void ObjectWriter::write_whole(const ManifestEntry& entry, const Piece& piece, std::span<const std::byte> stored) {
  if (entry.object.md5) {
    Md5Sum md5;
    md5.add(stored);
    check_md5(entry, md5.result());
  }
  const std::uint64_t key = StageLog::key_of(manifest_, entry);
  if (entry.compression == Compression::kNone && piece.kept_bytes > 0) {
    const auto rest = stored.subspan(static_cast<std::size_t>(piece.kept_bytes));
    write_stored(entry, piece, rest);
    publish(entry, folder_.stored_part(key), crc32c(rest, piece.kept_crc32c));
    return;
  }
  std::span<const std::byte> contents = stored;
  if (entry.compression != Compression::kNone) {
    check_beginning(entry, stored);
    const auto inflated = inflate(entry, stored);
    if (!inflated) {
      keep_piece(entry, {}, stored);
      inflate_part(entry);
      return;
    }
    contents = *inflated;
    ++counts_.gzip;
  }
  const auto part = folder_.written_part(key);
  {
    const UniqueFd fd = open_for_writing(part, true);
    write_at(fd.get(), contents, 0, part);
    begin_writeback(fd.get());
  }
  publish(entry, part, crc32c(contents));
  std::error_code ignored;
  if (piece.kept_bytes > 0) std::filesystem::remove(folder_.stored_part(key), ignored);
}

void ObjectWriter::keep_beginning(const ManifestEntry& entry, Piece& piece, std::span<const std::byte> stored) {
  write_stored(entry, piece, stored);
  piece.kept_bytes += stored.size();
  piece.kept_crc32c = crc32c(stored, piece.kept_crc32c);
  log_.add_beginning(StageLog::key_of(manifest_, entry), piece.number, piece.kept_bytes, piece.kept_crc32c);
}

void ObjectWriter::keep_piece(const ManifestEntry& entry, const Piece& piece, std::span<const std::byte> stored) {
  write_stored(entry, piece, stored);
  log_.add_part(StageLog::key_of(manifest_, entry), piece.number, crc32c(stored, piece.kept_crc32c));
}

void ObjectWriter::write_stored(const ManifestEntry& entry, const Piece& piece, std::span<const std::byte> stored) {
  const std::uint64_t key = StageLog::key_of(manifest_, entry);
  const auto path = folder_.stored_part(key);
  // Before it is made: pieces of an earlier file must not count as parts of this one. Where two threads are here at
  // once, pieces are forgotten, and read again after a kill.
  if (!std::filesystem::exists(path)) log_.begin_parts(key);
  const UniqueFd fd = open_for_writing(path, false);
  write_at(fd.get(), stored, piece.offset_bytes + piece.kept_bytes, path);
  begin_writeback(fd.get());
}

void ObjectWriter::assemble(const ManifestEntry& entry) {
  const auto part = folder_.stored_part(StageLog::key_of(manifest_, entry));
  if (entry.compression != Compression::kNone) {
    if (entry.object.md5) check_md5(entry, *sums_of(part, true).md5);
    inflate_part(entry);
    return;
  }
  const FileSums sums = sums_of(part, entry.object.md5.has_value());
  if (sums.md5) check_md5(entry, *sums.md5);
  publish(entry, part, sums.crc32c);
}

void ObjectWriter::inflate_part(const ManifestEntry& entry) {
  const std::uint64_t key = StageLog::key_of(manifest_, entry);
  const auto stored = folder_.stored_part(key);
  const auto written = folder_.written_part(key);
  Bytes first(std::min<std::uint64_t>(kFirstBytes, entry.object.size_bytes));
  data::open_local_file(stored.string())->read_at(0, first);
  check_beginning(entry, first);
  const WrittenFile file = inflate_file(stored, entry.compression, written, describe(entry));
  ++counts_.gzip;
  publish(entry, written, file.crc32c);
  std::error_code ignored;
  std::filesystem::remove(stored, ignored);
}

void ObjectWriter::publish(const ManifestEntry& entry, const std::filesystem::path& part, std::uint32_t crc32c) {
  const StageLog::Done done = folder_.publish(part, entry.target, crc32c);
  log_.add_done(StageLog::key_of(manifest_, entry), done, entry.target);
  counts_.bytes += done.bytes;
}

}  // namespace gyre::store
