#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/net/stream.h"

namespace gyre::net {

/// Control messages: 16 bytes of header (magic u16, type u16, length u32, XXH3-64 of the payload),
/// then the payload. The reader verifies the payload's own format next.
struct Message {
  std::uint16_t type = 0;
  Bytes payload;
};

constexpr std::size_t kMessageHeaderBytes = 16;
constexpr std::uint32_t kMostMessageBytes = 1U << 26;

/// Header and payload in one buffer. Error(kResourceExhausted) when the payload is over the limit.
Bytes encode_message(std::uint16_t type, std::span<const std::byte> payload);

/// Cuts a flow of bytes into messages. Not thread-safe.
/// Error(kProtocol) on wrong magic or length, Error(kCorruptData) on a wrong checksum.
class MessageParser {
 public:
  void append(std::span<const std::byte> bytes);
  std::optional<Message> next();

 private:
  Bytes buffer_;
  std::size_t start_ = 0;
};

void send_message(Stream& stream, std::uint16_t type, std::span<const std::byte> payload, Deadline deadline);
Message receive_message(Stream& stream, Deadline deadline);

}  // namespace gyre::net
