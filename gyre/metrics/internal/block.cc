#include "gyre/metrics/internal/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::metrics {
namespace {

constexpr const char* kWhat = "a block of metrics";
constexpr std::uint64_t kMostRank = (1U << 24) - 1;

void put_varint(ByteWriter& writer, std::uint64_t value) {
  while (value >= 0x80) {
    writer.u8(static_cast<std::uint8_t>(value | 0x80));
    value >>= 7;
  }
  writer.u8(static_cast<std::uint8_t>(value));
}

std::uint64_t take_varint(ByteReader& reader) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint64_t byte = reader.u8();
    const std::uint64_t part = byte & 0x7F;
    if (shift == 63 && part > 1) break;
    value |= part << shift;
    if (byte < 0x80) return value;
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: a number has more than 64 bits", kWhat));
}

/// Small numbers of either sign become small numbers.
std::uint64_t zigzag(std::uint64_t difference) { return (difference << 1) ^ (0 - (difference >> 63)); }
std::uint64_t unzigzag(std::uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

/// The sample before, from which the next one differs by little. Differences are taken modulo 2^64.
struct Before {
  std::uint64_t step = 0;
  std::uint64_t time_us = 0;
};

void put_difference(ByteWriter& writer, std::uint64_t& before, std::int64_t now) {
  const auto value = static_cast<std::uint64_t>(now);
  put_varint(writer, zigzag(value - before));
  before = value;
}

std::int64_t take_difference(ByteReader& reader, std::uint64_t& before) {
  before += unzigzag(take_varint(reader));
  return static_cast<std::int64_t>(before);
}

void put_text(ByteWriter& writer, std::string_view text) {
  put_varint(writer, text.size());
  writer.text(text);
}

std::string_view take_text(ByteReader& reader, std::size_t longest) {
  const std::uint64_t size = take_varint(reader);
  if (size > longest) throw Error(ErrorCode::kCorruptData, fmt::format("{}: a text of {} bytes", kWhat, size));
  return reader.text(size);
}

Bytes with_header(std::span<const std::byte> body) {
  ByteWriter size;
  size.u32(static_cast<std::uint32_t>(body.size()));
  ByteWriter block;
  block.bytes(size.result());
  block.u32(crc32c(body, crc32c(size.result())));
  block.bytes(body);
  return block.take();
}

constexpr std::size_t kLongestVarint = 10;
/// Kind, number of names.
constexpr std::size_t kMostBeforeNames = 1 + kLongestVarint;

Sample take_sample(ByteReader& reader, const std::vector<std::string>& names, Before& before) {
  Sample sample;
  const std::uint64_t number = take_varint(reader);
  if (number >= names.size()) throw Error(ErrorCode::kCorruptData, fmt::format("{}: no series {}", kWhat, number));
  sample.name = names[number];
  const std::uint64_t rank = take_varint(reader);
  if (rank > kMostRank) throw Error(ErrorCode::kCorruptData, fmt::format("{}: rank {}", kWhat, rank));
  sample.rank = static_cast<int>(rank);
  sample.step = take_difference(reader, before.step);
  sample.time_us = take_difference(reader, before.time_us);
  sample.value = std::bit_cast<double>(reader.u64());
  return sample;
}

void take_names(ByteReader& reader, std::vector<std::string>& names) {
  for (std::uint64_t left = take_varint(reader); left > 0; --left) {
    const std::string_view name = take_text(reader, kLongestName);
    if (!is_name(name)) throw Error(ErrorCode::kCorruptData, fmt::format("{}: not a name", kWhat));
    if (names.size() == kMostSeries) throw Error(ErrorCode::kCorruptData, fmt::format("{}: too many series", kWhat));
    names.emplace_back(name);
  }
}

}  // namespace

EncodedSamples encode_samples(std::span<const Sample> samples, const NameNumbers& names, std::size_t most_bytes) {
  constexpr std::size_t kMostSampleBytes = 4 * kLongestVarint + sizeof(double);
  const std::size_t most = std::min(most_bytes - kBlockHeader, kMostBodyBytes);
  std::map<std::string_view, std::uint64_t> numbers;  // Of this block's new names.
  ByteWriter new_names;
  ByteWriter points;
  EncodedSamples encoded;
  Before before;
  for (const Sample& sample : samples) {
    GYRE_CHECK(is_name(sample.name));
    GYRE_CHECK(sample.rank >= 0);
    const auto known = names.find(sample.name);
    const auto number = known == names.end() ? numbers.find(sample.name) : numbers.end();
    const bool is_new = known == names.end() && number == numbers.end();
    const std::size_t name_bytes = is_new ? kLongestVarint + sample.name.size() : 0;
    const std::size_t bytes = kMostBeforeNames + new_names.result().size() + points.result().size();
    if (bytes + name_bytes + kMostSampleBytes > most) break;
    if (is_new) {
      numbers.emplace(sample.name, names.size() + numbers.size());
      put_text(new_names, sample.name);
      encoded.new_names.push_back(sample.name);
    }
    put_varint(points, known != names.end() ? known->second : numbers.at(sample.name));
    put_varint(points, static_cast<std::uint64_t>(sample.rank));
    put_difference(points, before.step, sample.step);
    put_difference(points, before.time_us, sample.time_us);
    points.u64(std::bit_cast<std::uint64_t>(sample.value));
    ++encoded.count;
  }
  GYRE_CHECK(encoded.count > 0U);
  ByteWriter body;
  body.u8(static_cast<std::uint8_t>(BlockKind::kSamples));
  put_varint(body, encoded.new_names.size());
  body.bytes(new_names.result());
  body.bytes(points.result());
  encoded.block = with_header(body.result());
  return encoded;
}

Bytes encode_note(std::string_view key, std::string_view value) {
  ByteWriter body;
  body.u8(static_cast<std::uint8_t>(BlockKind::kNote));
  put_text(body, key);
  put_text(body, value);
  if (!is_name(key) || body.result().size() > kMostBodyBytes) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a note in a metrics file has a name and {} bytes at most",
                                                         kMostBodyBytes - kLongestName - 3));
  }
  return with_header(body.result());
}

Bytes encode_event(std::string_view line) {
  ByteWriter body;
  body.u8(static_cast<std::uint8_t>(BlockKind::kEvent));
  put_text(body, line);
  if (body.result().size() > kMostBodyBytes) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("an event of {} bytes is too long", line.size()));
  }
  return with_header(body.result());
}

std::optional<std::span<const std::byte>> body_of_first_block(std::span<const std::byte> bytes) {
  if (bytes.size() < kBlockHeader) return std::nullopt;
  ByteReader reader(bytes.first(kBlockHeader), kWhat);
  const std::uint32_t size = reader.u32();
  const std::uint32_t checksum = reader.u32();
  if (size == 0 || size > kMostBodyBytes || size > bytes.size() - kBlockHeader) return std::nullopt;
  const auto body = bytes.subspan(kBlockHeader, size);
  if (crc32c(body, crc32c(bytes.first(4))) != checksum) return std::nullopt;
  return body;
}

DecodedBlock decode_block(std::span<const std::byte> body, std::vector<std::string>& names) {
  ByteReader reader(body, kWhat);
  DecodedBlock block;
  const std::uint8_t kind = reader.u8();
  if (kind == static_cast<std::uint8_t>(BlockKind::kNote)) {
    const std::string_view key = take_text(reader, kLongestName);
    if (!is_name(key)) throw Error(ErrorCode::kCorruptData, fmt::format("{}: not a name", kWhat));
    block.note.emplace(key, take_text(reader, kMostBodyBytes));
    if (reader.remaining() > 0) throw Error(ErrorCode::kCorruptData, fmt::format("{}: more than a note", kWhat));
  } else if (kind == static_cast<std::uint8_t>(BlockKind::kEvent)) {
    block.event = take_text(reader, kMostBodyBytes);
    if (reader.remaining() > 0) throw Error(ErrorCode::kCorruptData, fmt::format("{}: more than an event", kWhat));
  } else if (kind == static_cast<std::uint8_t>(BlockKind::kSamples)) {
    take_names(reader, names);  // Before any view is taken: the vector may move.
    Before before;
    while (reader.remaining() > 0) block.samples.push_back(take_sample(reader, names, before));
  }
  return block;
}

}  // namespace gyre::metrics
