#include "gyre/data/formats/tfrecord.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::data {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kHeaderBytes = kLengthBytes + kChecksumBytes;

[[noreturn]] void throw_corrupt(std::string_view name, std::uint64_t record, std::uint64_t offset,
                                std::string_view what) {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: record {}, which begins at byte {}, {}", name, record, offset, what));
}

/// The payload's length, unless its checksum is another one.
std::optional<std::uint64_t> length_of(std::span<const std::byte, kHeaderBytes> header) {
  ByteReader reader(header, "a record's length");
  const std::uint64_t length = reader.u64();
  if (reader.u32() != masked_crc32c(header.first<kLengthBytes>())) return std::nullopt;
  return length;
}

[[noreturn]] void throw_wrong_length(std::string_view name, std::uint64_t record, std::uint64_t offset) {
  throw_corrupt(name, record, offset,
                record == 0 ? "has a length whose checksum is wrong: it is damaged or is not a TFRecord file"
                            : "has a length whose checksum is wrong");
}

/// `left`: what the file holds behind the header.
[[noreturn]] void throw_cut_off(std::string_view name, std::uint64_t record, std::uint64_t offset, std::uint64_t length,
                                std::uint64_t left) {
  throw_corrupt(name, record, offset,
                fmt::format("has {} bytes of which the file holds {}: it was cut off", length,
                            left < kChecksumBytes ? 0 : left - kChecksumBytes));
}

/// Where the record behind `header`, at `offset` of a file of `size_bytes`, has its payload.
RecordPlace place_of(std::span<const std::byte, kHeaderBytes> header, std::uint64_t offset, std::uint64_t size_bytes,
                     std::string_view name, std::uint64_t record) {
  const auto length = length_of(header);
  if (!length) throw_wrong_length(name, record, offset);
  const std::uint64_t left = size_bytes - offset - kHeaderBytes;
  if (left < kChecksumBytes || *length > left - kChecksumBytes) throw_cut_off(name, record, offset, *length, left);
  return {offset + kHeaderBytes, *length};
}

/// `read_header(offset, header)` fills a header.
template <typename ReadHeader>
std::vector<RecordPlace> index(std::uint64_t size_bytes, std::string_view name, const ReadHeader& read_header) {
  std::vector<RecordPlace> places;
  std::array<std::byte, kHeaderBytes> header;
  for (std::uint64_t offset = 0; offset < size_bytes;) {
    if (size_bytes - offset < kHeaderBytes) {
      throw_corrupt(name, places.size(), offset,
                    fmt::format("is cut off: {} bytes are left in the file", size_bytes - offset));
    }
    read_header(offset, header);
    places.push_back(place_of(header, offset, size_bytes, name, places.size()));
    offset = places.back().offset_bytes + places.back().size_bytes + kChecksumBytes;
  }
  return places;
}

/// The headers of a file that is not compressed. While records are short, what lies around a header is read with it.
class Headers {
 public:
  explicit Headers(const ReadableFile& file) : file_(file) {}

  void read(std::uint64_t offset, std::span<std::byte> header) {
    if (offset < begin_ || offset + header.size() > begin_ + window_.size()) {
      const bool short_records = offset > 0 && offset - last_ <= kShortRecordBytes;
      begin_ = offset;
      window_.resize(static_cast<std::size_t>(
          std::min<std::uint64_t>(short_records ? kWindowBytes : header.size(), file_.size_bytes() - offset)));
      file_.read_at(offset, window_);
    }
    last_ = offset;
    std::ranges::copy(std::span(window_).subspan(static_cast<std::size_t>(offset - begin_), header.size()),
                      header.begin());
  }

 private:
  static constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 10;
  static constexpr std::uint64_t kShortRecordBytes = kWindowBytes / 4;

  const ReadableFile& file_;
  std::vector<std::byte> window_;
  std::uint64_t begin_ = 0;  // Of window_ in the file.
  std::uint64_t last_ = 0;   // Header.
};

/// The contents of a compressed file, of which most are passed over.
class Contents {
 public:
  Contents(const ReadableFile& file, Compression compression) : stream_(file, compression), piece_(kPieceBytes) {}

  std::uint64_t offset() const { return offset_; }

  /// Fewer bytes at the end alone.
  std::size_t read(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size() && fill()) {
      const std::size_t count = std::min(into.size() - done, end_ - begin_);
      std::copy_n(piece_.begin() + static_cast<std::ptrdiff_t>(begin_), count,
                  into.begin() + static_cast<std::ptrdiff_t>(done));
      pass(count);
      done += count;
    }
    return done;
  }

  /// How many bytes it was; fewer at the end alone.
  std::uint64_t skip(std::uint64_t bytes) {
    std::uint64_t done = 0;
    while (done < bytes && fill()) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - done, end_ - begin_));
      pass(count);
      done += count;
    }
    return done;
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

  bool fill() {
    if (begin_ < end_) return true;
    begin_ = 0;
    end_ = stream_.read(piece_);
    return end_ > 0;
  }
  void pass(std::size_t bytes) {
    begin_ += bytes;
    offset_ += bytes;
  }

  InflateStream stream_;
  std::vector<std::byte> piece_;
  std::size_t begin_ = 0;  // Of piece_: what has not been passed.
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;
};

/// `bytes`: a payload and its checksum, which is compared.
std::span<const std::byte> without_checksum(std::span<const std::byte> bytes, const RecordPlace& place,
                                            std::string_view name, std::uint64_t record) {
  const auto payload = bytes.first(bytes.size() - kChecksumBytes);
  if (ByteReader(bytes.last(kChecksumBytes), "a record's checksum").u32() != masked_crc32c(payload)) {
    throw_corrupt(name, record, place.offset_bytes - kHeaderBytes, "has contents whose checksum is wrong");
  }
  return payload;
}

}  // namespace

Bytes framed_tfrecord(std::span<const std::byte> payload) {
  ByteWriter length;
  length.u64(payload.size());
  ByteWriter record;
  record.bytes(length.result());
  record.u32(masked_crc32c(length.result()));
  record.bytes(payload);
  record.u32(masked_crc32c(payload));
  return record.take();
}

bool begins_with_record(std::span<const std::byte> first) {
  return first.size() >= kHeaderBytes && length_of(first.first<kHeaderBytes>()).has_value();
}

Compression tfrecord_compression(std::span<const std::byte> first) {
  if (begins_with_record(first)) return Compression::kNone;
  return sniff_compression(first);
}

std::vector<RecordPlace> index_tfrecords(const ReadableFile& file) {
  Headers headers(file);
  return index(file.size_bytes(), file.name(),
               [&](std::uint64_t offset, std::span<std::byte> header) { headers.read(offset, header); });
}

std::vector<RecordPlace> index_tfrecords(std::span<const std::byte> contents, std::string_view name) {
  return index(contents.size(), name, [&](std::uint64_t offset, std::span<std::byte> header) {
    std::ranges::copy(contents.subspan(static_cast<std::size_t>(offset), header.size()), header.begin());
  });
}

TfRecordCount count_tfrecords(const ReadableFile& file, Compression compression) {
  Contents contents(file, compression);
  std::array<std::byte, kHeaderBytes> header;
  for (std::uint64_t record = 0;; ++record) {
    const std::uint64_t offset = contents.offset();
    const std::size_t bytes = contents.read(header);
    if (bytes == 0) return {record, offset};
    if (bytes < header.size()) {
      throw_corrupt(file.name(), record, offset, fmt::format("is cut off: {} bytes are left in the file", bytes));
    }
    const auto length = length_of(header);
    if (!length) throw_wrong_length(file.name(), record, offset);
    const std::uint64_t payload = contents.skip(*length);
    const std::uint64_t checksum = contents.skip(kChecksumBytes);
    if (checksum < kChecksumBytes) throw_cut_off(file.name(), record, offset, *length, payload + checksum);
  }
}

std::uint64_t RecordPlace::end_bytes() const { return offset_bytes + size_bytes + kChecksumBytes; }

std::span<const std::byte> checked_payload(std::span<const std::byte> contents, const RecordPlace& place,
                                           std::string_view name, std::uint64_t record) {
  const auto size = static_cast<std::size_t>(place.size_bytes);
  return without_checksum(contents.subspan(static_cast<std::size_t>(place.offset_bytes), size + kChecksumBytes), place,
                          name, record);
}

std::span<const std::byte> read_tfrecord(const ReadableFile& file, const RecordPlace& place, std::uint64_t record,
                                         ScratchBuffer& buffer) {
  const std::span<std::byte> bytes = buffer.take(static_cast<std::size_t>(place.size_bytes) + kChecksumBytes);
  file.read_at(place.offset_bytes, bytes);
  return without_checksum(bytes, place, file.name(), record);
}

void write_tfrecords(const std::filesystem::path& path, std::span<const Bytes> payloads, Compression compression,
                     int level) {
  Bytes contents;
  for (const Bytes& payload : payloads) {
    const Bytes record = framed_tfrecord(payload);
    contents.insert(contents.end(), record.begin(), record.end());
  }
  write_file_atomically(path, deflate(compression, contents, level));
}

}  // namespace gyre::data
