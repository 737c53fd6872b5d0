#include "gyre/net/frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

constexpr std::uint32_t kFrameMagic = 0x46525947;  // "GYRF"
constexpr std::uint16_t kFrameVersion = 1;

}  // namespace

EncodedFrameHeader encode_frame_header(const FrameHeader& header) {
  GYRE_CHECK(header.payload_bytes <= kMostPayloadBytes);
  // Written by hand and not with ByteWriter, because this is on the path of every piece and must not allocate.
  EncodedFrameHeader bytes;
  std::size_t offset = 0;
  const auto put = [&](std::uint64_t value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) bytes[offset++] = static_cast<std::byte>(value >> (8 * i));
  };
  put(kFrameMagic, 4);
  put(kFrameVersion, 2);
  put(0, 2);
  put(header.payload_bytes, 4);
  put(header.channel, 4);
  put(header.collective, 8);
  put(header.step, 4);
  put(header.piece, 4);
  put(header.checksum, 8);
  GYRE_CHECK(offset == kFrameHeaderBytes);
  return bytes;
}

FrameHeader decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  std::size_t offset = 0;
  const auto get = [&](std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) value |= std::to_integer<std::uint64_t>(bytes[offset++]) << (8 * i);
    return value;
  };
  const auto magic = static_cast<std::uint32_t>(get(4));
  const auto version = static_cast<std::uint16_t>(get(2));
  const auto reserved = static_cast<std::uint16_t>(get(2));
  if (magic != kFrameMagic) {
    throw Error(ErrorCode::kProtocol, fmt::format("a frame starts with {:#010x} instead of {:#010x}; the flow of bytes "
                                                  "is not one of Gyre's or has lost its place",
                                                  magic, kFrameMagic));
  }
  if (version != kFrameVersion || reserved != 0) {
    throw Error(ErrorCode::kProtocol, fmt::format("a frame has version {} (reserved {}), this Gyre speaks version {}; "
                                                  "run the same Gyre on every host",
                                                  version, reserved, kFrameVersion));
  }
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(get(4));
  header.channel = static_cast<std::uint32_t>(get(4));
  header.collective = get(8);
  header.step = static_cast<std::uint32_t>(get(4));
  header.piece = static_cast<std::uint32_t>(get(4));
  header.checksum = get(8);
  if (header.payload_bytes > kMostPayloadBytes) {
    throw Error(ErrorCode::kProtocol, fmt::format("a frame announces {} bytes, at most {} are allowed",
                                                  header.payload_bytes, kMostPayloadBytes));
  }
  return header;
}

}  // namespace gyre::net
