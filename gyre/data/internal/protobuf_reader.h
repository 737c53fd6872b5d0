#pragma once

#include <cstdint>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/data/internal/protobuf_writer.h"

namespace gyre::data {

/// Steps through the fields of one protobuf message that nobody vouches for. Error(kCorruptData) names the offset in
/// the message. Views into the message; nothing is copied.
class ProtobufReader {
 public:
  struct Field {
    std::uint32_t number = 0;
    WireType type = WireType::kVarint;
    std::uint64_t value = 0;             ///< Of kVarint, kFixed32 and kFixed64.
    std::span<const std::byte> bytes{};  ///< Of kLengthDelimited.
  };

  explicit ProtobufReader(std::span<const std::byte> message) : reader_(message, "a protobuf message") {}

  bool at_end() const { return reader_.remaining() == 0; }

  Field next() {
    const std::uint64_t tag = varint();
    Field field;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    if (tag >> 3 == 0 || tag >> 32 != 0) throw_corrupt("a field number that protobuf does not have");
    switch (tag & 7) {
      case 0: field.value = varint(); break;
      case 1: field.value = reader_.u64(); break;
      case 2: field.bytes = reader_.bytes(length()); break;
      case 5: field.value = reader_.u32(); break;
      default: throw_corrupt("a field of an unknown type");
    }
    field.type = static_cast<WireType>(tag & 7);
    return field;
  }

  std::uint64_t varint() {
    constexpr int kMostShift = 63;
    std::uint64_t value = 0;
    for (int shift = 0; shift <= kMostShift; shift += 7) {
      const std::uint8_t byte = reader_.u8();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw_corrupt("a number of more than ten bytes");
  }

 private:
  std::size_t length() {
    const std::uint64_t bytes = varint();
    if (bytes > reader_.remaining()) throw_corrupt("a field that is longer than the message");
    return static_cast<std::size_t>(bytes);
  }

  [[noreturn]] void throw_corrupt(const char* what) const {
    throw Error(ErrorCode::kCorruptData,
                "a protobuf message has, before its byte " + std::to_string(reader_.offset()) + ", " + what);
  }

  ByteReader reader_;
};

}  // namespace gyre::data
