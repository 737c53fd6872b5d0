#include "gyre/base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "gyre/base/error.h"

namespace gyre {

template <typename T>
T ByteReader::integer() {
  const auto raw = bytes(sizeof(T));
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (static_cast<T>(raw[i]) << (8 * i)));
  return value;
}

std::uint8_t ByteReader::u8() { return integer<std::uint8_t>(); }
std::uint16_t ByteReader::u16() { return integer<std::uint16_t>(); }
std::uint32_t ByteReader::u32() { return integer<std::uint32_t>(); }
std::uint64_t ByteReader::u64() { return integer<std::uint64_t>(); }

std::span<const std::byte> ByteReader::bytes(std::size_t count) {
  if (count > remaining()) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} is cut short: {} bytes needed at offset {}, {} left", what_,
                                                     count, offset_, remaining()));
  }
  const auto result = bytes_.subspan(offset_, count);
  offset_ += count;
  return result;
}

std::string_view ByteReader::text(std::size_t count) { return as_text(bytes(count)); }

namespace {
template <typename T>
void append_integer(Bytes& result, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) result.push_back(static_cast<std::byte>(value >> (8 * i)));
}
}  // namespace

void ByteWriter::u8(std::uint8_t value) { append_integer(result_, value); }
void ByteWriter::u16(std::uint16_t value) { append_integer(result_, value); }
void ByteWriter::u32(std::uint32_t value) { append_integer(result_, value); }
void ByteWriter::u64(std::uint64_t value) { append_integer(result_, value); }
void ByteWriter::bytes(std::span<const std::byte> value) { result_.insert(result_.end(), value.begin(), value.end()); }
void ByteWriter::text(std::string_view value) { bytes(as_bytes(value)); }

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.95 would be shown as 1024.0.
  while ((unit == 0 ? value >= 1024 : value >= 1023.95) && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const double tenths = std::round(value * 10);
  const bool whole = std::fmod(tenths, 10) == 0;
  return fmt::format("{:.{}f} {}", tenths / 10, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace gyre
