#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre {

using Bytes = std::vector<std::byte>;

/// Reads little-endian values from bytes that nobody vouches for. Every read checks the bounds and
/// throws Error(kCorruptData) naming `what` and the offset when the bytes end too early.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  std::uint8_t u8();
  std::uint16_t u16();
  std::uint32_t u32();
  std::uint64_t u64();
  std::span<const std::byte> bytes(std::size_t count);
  std::string_view text(std::size_t count);

  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

 private:
  template <typename T>
  T integer();

  std::span<const std::byte> bytes_;
  std::string what_;
  std::size_t offset_ = 0;
};

/// Appends little-endian values.
class ByteWriter {
 public:
  void u8(std::uint8_t value);
  void u16(std::uint16_t value);
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);
  void bytes(std::span<const std::byte> value);
  void text(std::string_view value);

  const Bytes& result() const { return result_; }
  Bytes take() { return std::move(result_); }

 private:
  Bytes result_;
};

std::span<const std::byte> as_bytes(std::string_view text);
std::string_view as_text(std::span<const std::byte> bytes);

/// "64 KB", "1.2 GB": powers of 1024, for people.
std::string format_bytes(std::uint64_t bytes);

}  // namespace gyre
