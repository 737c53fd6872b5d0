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
/// The same without a copy: `message` is kMessageHeaderBytes of room for the header, then the payload.
Bytes encode_message_in_place(std::uint16_t type, Bytes message);

struct MessageHeader {
  std::uint16_t type = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t checksum = 0;
};

/// Cuts a flow of bytes into messages. Not thread-safe.
/// Error(kProtocol) on wrong magic or length, Error(kCorruptData) on a wrong checksum.
class MessageParser {
 public:
  void append(std::span<const std::byte> bytes);
  std::optional<Message> next();

 private:
  Bytes buffer_;  ///< From `start_` on: what has come behind `payload_`.
  std::size_t start_ = 0;
  std::optional<MessageHeader> header_;  ///< Of the message that has come in part.
  Bytes payload_;                        ///< Of the same; handed over as it is once it is whole.
};

void send_message(Stream& stream, std::uint16_t type, std::span<const std::byte> payload, Deadline deadline);
Message receive_message(Stream& stream, Deadline deadline);

}  // namespace gyre::net
