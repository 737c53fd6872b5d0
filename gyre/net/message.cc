#include "gyre/net/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

constexpr std::uint16_t kMessageMagic = 0x4D47;  // "GM"

/// What a header may make us reserve before it has come.
constexpr std::size_t kMostReservedBytes = std::size_t{1} << 20;

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
  Bytes message;
  message.reserve(kMessageHeaderBytes + payload.size());
  message.resize(kMessageHeaderBytes);
  message.insert(message.end(), payload.begin(), payload.end());
  return encode_message_in_place(type, std::move(message));
}

Bytes encode_message_in_place(std::uint16_t type, Bytes message) {
  const std::span<const std::byte> payload = std::span(message).subspan(kMessageHeaderBytes);
  if (payload.size() > kMostMessageBytes) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("a message of type {} has {} bytes, at most {} are allowed",
                                                           type, payload.size(), kMostMessageBytes));
  }
  ByteWriter header;
  header.u16(kMessageMagic);
  header.u16(type);
  header.u32(static_cast<std::uint32_t>(payload.size()));
  header.u64(xxh3_64(payload));
  std::ranges::copy(header.result(), message.begin());
  return message;
}

void MessageParser::append(std::span<const std::byte> bytes) {
  if (header_ && start_ == buffer_.size()) {  // Straight to where it belongs.
    const auto part = bytes.first(std::min(bytes.size(), header_->payload_bytes - payload_.size()));
    payload_.insert(payload_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
  }
  // What was consumed is dropped here and not in next(), so that many small messages cost one move.
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(start_));
  start_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Message> MessageParser::next() {
  if (!header_) {
    const std::span<const std::byte> rest = std::span(buffer_).subspan(start_);
    if (rest.size() < kMessageHeaderBytes) return std::nullopt;
    header_ = decode_header(rest);
    start_ += kMessageHeaderBytes;
    payload_.reserve(std::min<std::size_t>(header_->payload_bytes, kMostReservedBytes));
  }
  const std::span<const std::byte> rest = std::span(buffer_).subspan(start_);
  const auto part = rest.first(std::min(rest.size(), header_->payload_bytes - payload_.size()));
  payload_.insert(payload_.end(), part.begin(), part.end());
  start_ += part.size();
  if (payload_.size() < header_->payload_bytes) return std::nullopt;
  check_payload(*header_, payload_);
  return Message{std::exchange(header_, std::nullopt)->type, std::exchange(payload_, {})};
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
