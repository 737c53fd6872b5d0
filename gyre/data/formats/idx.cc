#include "gyre/data/formats/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

constexpr std::uint8_t kUnsignedBytes = 0x08;
constexpr std::size_t kMostExtents = 4;
constexpr std::size_t kMagicBytes = 4;

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t index) {
  return std::to_integer<std::uint8_t>(bytes[index]);
}

}  // namespace

std::uint64_t IdxHeader::item_bytes() const {
  std::uint64_t bytes = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
  return bytes;
}

bool is_idx(std::span<const std::byte> first) {
  if (first.size() < kMagicBytes || byte_at(first, 0) != 0 || byte_at(first, 1) != 0) return false;
  const std::uint8_t type = byte_at(first, 2);
  const std::uint8_t extents = byte_at(first, 3);
  return type >= kUnsignedBytes && type <= 0x0e && extents >= 1 && extents <= kMostExtents;
}

IdxHeader parse_idx(std::span<const std::byte> first, std::uint64_t contents_bytes, std::string_view name) {
  if (!is_idx(first)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} is damaged, or no IDX file: its first bytes are not 00 00, a "
                                                     "type, and 1 to {} extents",
                                                     name, kMostExtents));
  }
  if (byte_at(first, 2) != kUnsignedBytes) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: IDX files of elements of type 0x{:02x} are not read, only of unsigned bytes (0x08)",
                            name, byte_at(first, 2)));
  }
  const std::size_t extents = byte_at(first, 3);
  IdxHeader header;
  header.size_bytes = kMagicBytes * (1 + extents);
  if (first.size() < header.size_bytes) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} ends within its header, at byte {}", name, first.size()));
  }
  std::uint64_t bytes = 1;
  bool overflow = false;
  for (std::size_t i = 0; i < extents; ++i) {
    std::uint32_t extent = 0;
    for (std::size_t j = 0; j < 4; ++j) extent = extent << 8 | byte_at(first, kMagicBytes * (1 + i) + j);
    header.shape.push_back(extent);
    overflow = overflow || __builtin_mul_overflow(bytes, std::uint64_t{extent}, &bytes);
  }
  if (overflow || bytes != contents_bytes - header.size_bytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the header says [{}] bytes, and {} follow it: the file was cut short or is damaged",
                            name, fmt::join(header.shape, ", "), contents_bytes - header.size_bytes));
  }
  return header;
}

}  // namespace gyre::data
