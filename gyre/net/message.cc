#include "gyre/net/message.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

constexpr std::uint16_t kMessageMagic = 0x4D47;  // "GM"

struct MessageHeader {
  std::uint16_t type = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t checksum = 0;
};

MessageHeader decode_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes.first(kMessageHeaderBytes), "a message's header");
  const std::uint16_t magic = reader.u16();
  MessageHeader header;
  header.type = reader.u16();
  header.payload_bytes = reader.u32();
  header.checksum = reader.u64();
  if (magic != kMessageMagic) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("a message starts with {:#06x} instead of {:#06x}; the flow of bytes is not one of Gyre's "
                            "or has lost its place",
                            magic, kMessageMagic));
  }
  if (header.payload_bytes > kMostMessageBytes) {
    throw Error(ErrorCode::kProtocol, fmt::format("a message of type {} announces {} bytes, at most {} are allowed",
                                                  header.type, header.payload_bytes, kMostMessageBytes));
  }
  return header;
}

void check_payload(const MessageHeader& header, std::span<const std::byte> payload) {
  if (xxh3_64(payload) == header.checksum) return;
  throw Error(ErrorCode::kCorruptData, fmt::format("a message of type {} and {} bytes fails its checksum; the "
                                                   "connection or a machine's memory damages data",
                                                   header.type, header.payload_bytes));
}

}  // namespace

Bytes encode_message(std::uint16_t type, std::span<const std::byte> payload) {
  if (payload.size() > kMostMessageBytes) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("a message of type {} has {} bytes, at most {} are allowed",
                                                           type, payload.size(), kMostMessageBytes));
  }
  ByteWriter writer;
  writer.u16(kMessageMagic);
  writer.u16(type);
  writer.u32(static_cast<std::uint32_t>(payload.size()));
  writer.u64(xxh3_64(payload));
  writer.bytes(payload);
  return writer.take();
}

void MessageParser::append(std::span<const std::byte> bytes) {
  // What was consumed is dropped here and not in next(), so that many small messages cost one move.
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(start_));
  start_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Message> MessageParser::next() {
  const std::span<const std::byte> rest = std::span(buffer_).subspan(start_);
  if (rest.size() < kMessageHeaderBytes) return std::nullopt;
  const MessageHeader header = decode_header(rest);
  const std::span<const std::byte> body = rest.subspan(kMessageHeaderBytes);
  if (body.size() < header.payload_bytes) return std::nullopt;
  const std::span<const std::byte> payload = body.first(header.payload_bytes);
  check_payload(header, payload);
  start_ += kMessageHeaderBytes + payload.size();
  return Message{header.type, Bytes(payload.begin(), payload.end())};
}

void send_message(Stream& stream, std::uint16_t type, std::span<const std::byte> payload, Deadline deadline) {
  write_exactly(stream, encode_message(type, payload), deadline);
}

Message receive_message(Stream& stream, Deadline deadline) {
  std::array<std::byte, kMessageHeaderBytes> bytes;
  read_exactly(stream, bytes, deadline);
  const MessageHeader header = decode_header(bytes);
  Message message{header.type, Bytes(header.payload_bytes)};
  read_exactly(stream, message.payload, deadline);
  check_payload(header, message.payload);
  return message;
}

}  // namespace gyre::net
