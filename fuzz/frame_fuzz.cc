// Frame headers arrive on every link: whatever the bytes, decoding gives a header within its limits or kProtocol.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "gyre/base/error.h"
#include "gyre/net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < gyre::net::kFrameHeaderBytes) return 0;
  gyre::net::EncodedFrameHeader bytes;
  std::transform(data, data + bytes.size(), bytes.begin(), [](std::uint8_t value) { return std::byte{value}; });
  try {
    const gyre::net::FrameHeader header = gyre::net::decode_frame_header(bytes);
    if (header.payload_bytes > gyre::net::kMostPayloadBytes) std::abort();
    if (gyre::net::encode_frame_header(header) != bytes) std::abort();
  } catch (const gyre::Error& error) {
    if (error.code() != gyre::ErrorCode::kProtocol) std::abort();
  }
  return 0;
}
