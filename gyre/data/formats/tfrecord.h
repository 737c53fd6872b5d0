#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/data/formats/inflate_stream.h"
#include "gyre/data/readable_file.h"

namespace gyre::data {

// TFRecord files: records one after the other, each its payload's length (8 bytes, little-endian), the masked CRC-32C
// of that length, the payload, and the payload's masked CRC-32C. Compressed files are such a file inside one gzip or
// zlib object, whatever their names say. Source: tensorflow/core/lib/io/record_writer.h.

/// A payload in its frame.
Bytes framed_tfrecord(std::span<const std::byte> payload);

/// Where the payload of a record lies in a file that is not compressed, or in the contents of one that is.
struct RecordPlace {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  /// Behind its checksum, where the next record begins.
  std::uint64_t end_bytes() const;
};

/// How a file is compressed, from its first bytes (12 where it has them). A length whose checksum is right is the
/// beginning of a record, even where its bytes look like a compressed file's.
Compression tfrecord_compression(std::span<const std::byte> first);

/// Whether the first bytes of a file are a record's length with its checksum.
bool begins_with_record(std::span<const std::byte> first);

/// The records of a file that is not compressed: lengths are read and checked, payloads are not; of short records many
/// at a time. Error(kCorruptData) names file, record and offset.
std::vector<RecordPlace> index_tfrecords(const ReadableFile& file);

/// The records of a whole file's uncompressed contents, likewise.
std::vector<RecordPlace> index_tfrecords(std::span<const std::byte> contents, std::string_view name);

/// What a compressed file holds.
struct TfRecordCount {
  std::uint64_t records = 0;
  std::uint64_t contents_bytes = 0;  ///< Decompressed.
};

/// Errors are those of InflateStream and index_tfrecords().
TfRecordCount count_tfrecords(const ReadableFile& file, Compression compression);

/// The payload at `place`, read with its checksum into `buffer`. Error(kCorruptData) names file, record and offset.
std::span<const std::byte> read_tfrecord(const ReadableFile& file, const RecordPlace& place, std::uint64_t record,
                                         ScratchBuffer& buffer);

/// The payload at `place` in `contents`, its checksum compared.
std::span<const std::byte> checked_payload(std::span<const std::byte> contents, const RecordPlace& place,
                                           std::string_view name, std::uint64_t record);

/// Writes a whole file at once (write_file_atomically); `level` as for deflate().
void write_tfrecords(const std::filesystem::path& path, std::span<const Bytes> payloads, Compression compression,
                     int level = 6);

}  // namespace gyre::data
