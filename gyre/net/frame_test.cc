// Frame headers are the bytes on every link between hosts: their layout is a promise (docs/formats/wire.md).
#include "gyre/net/frame.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::net {
namespace {

const FrameHeader kExample{.payload_bytes = 0x01020304,
                           .channel = 0x11121314,
                           .collective = 0x2122232425262728,
                           .step = 0x31323334,
                           .piece = 0x41424344,
                           .checksum = 0x5152535455565758};

TEST(Frame, a_header_has_the_documented_bytes) {
  const EncodedFrameHeader bytes = encode_frame_header(kExample);
  const std::array<int, kFrameHeaderBytes> expected{'G',  'Y',  'R',  'F',  1,    0,    0,    0,    0x04, 0x03,
                                                    0x02, 0x01, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25,
                                                    0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 0x44, 0x43,
                                                    0x42, 0x41, 0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51};
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  EXPECT_EQ(decode_frame_header(bytes), kExample);
}

TEST(Frame, wrong_magic_version_and_length_are_protocol_errors) {
  // Bytes 0-3 magic, 4-5 version, 6-7 reserved; 11 is the length's highest.
  for (const std::size_t position : {0U, 3U, 4U, 5U, 6U, 7U, 11U}) {
    EncodedFrameHeader bytes = encode_frame_header(kExample);
    bytes[position] ^= std::byte{0x80};
    try {
      decode_frame_header(bytes);
      ADD_FAILURE() << "accepted a change of byte " << position;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    }
  }
}

TEST(Frame, random_bytes_never_decode_to_an_oversized_payload) {
  const std::uint64_t seed = 20'250'101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  int decoded = 0;
  for (int round = 0; round < 100'000; ++round) {
    EncodedFrameHeader bytes = encode_frame_header(kExample);
    // Half of the rounds keep magic and version, so that the fields behind them are reached.
    for (std::size_t i = round % 2 == 0 ? 0 : 8; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(random.next_u32());
    try {
      EXPECT_LE(decode_frame_header(bytes).payload_bytes, kMostPayloadBytes);
      ++decoded;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    }
  }
  EXPECT_GT(decoded, 0);
}

}  // namespace
}  // namespace gyre::net
