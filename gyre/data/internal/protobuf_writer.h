#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "gyre/base/bytes.h"

namespace gyre::data {

/// Protobuf's wire types, of which groups (3 and 4) are not used by any format of ours.
enum class WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

/// Encodes one protobuf message by hand, because libtorch brings a protobuf of its own.
class ProtobufWriter {
 public:
  void varint_field(std::uint32_t field, std::uint64_t value) {
    tag(field, WireType::kVarint);
    varint(value);
  }
  void double_field(std::uint32_t field, double value) {
    tag(field, WireType::kFixed64);
    writer_.u64(std::bit_cast<std::uint64_t>(value));
  }
  void float_field(std::uint32_t field, float value) {
    tag(field, WireType::kFixed32);
    writer_.u32(std::bit_cast<std::uint32_t>(value));
  }
  void bytes_field(std::uint32_t field, std::span<const std::byte> value) {
    tag(field, WireType::kLengthDelimited);
    varint(value.size());
    writer_.bytes(value);
  }
  /// Without a field number: for the inside of packed lists.
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) writer_.u8(static_cast<std::uint8_t>(value | 0x80));
    writer_.u8(static_cast<std::uint8_t>(value));
  }
  Bytes take() { return writer_.take(); }

 private:
  void tag(std::uint32_t field, WireType type) { varint(field << 3 | static_cast<std::uint32_t>(type)); }

  ByteWriter writer_;
};

}  // namespace gyre::data
