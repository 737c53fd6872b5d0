#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::net {

/// Header of a piece of a collective on a link; little-endian; the payload follows.
/// `docs/formats/wire.md` has the bytes.
struct FrameHeader {
  std::uint32_t payload_bytes = 0;
  std::uint32_t channel = 0;     ///< The lane.
  std::uint64_t collective = 0;  ///< Its number in the lane, from 1.
  std::uint32_t step = 0;        ///< Of the schedule.
  std::uint32_t piece = 0;       ///< Piece of the step's range, from 0.
  std::uint64_t checksum = 0;    ///< XXH3-64 of the payload.

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

constexpr std::size_t kFrameHeaderBytes = 40;
/// Payloads are pieces of buffers; a longer one is a protocol error.
constexpr std::uint32_t kMostPayloadBytes = 1U << 26;

using EncodedFrameHeader = std::array<std::byte, kFrameHeaderBytes>;

EncodedFrameHeader encode_frame_header(const FrameHeader& header);
/// Error(kProtocol) on wrong magic, version or length.
FrameHeader decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes);

}  // namespace gyre::net
