// Why: a ring that waited for the end of a step before it began the next one would let the link idle once per step.
#include "gyre/collectives/internal/links/link_allreduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gyre/base/checksum.h"
#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/net/frame.h"

namespace gyre::collectives::internal {
namespace {

constexpr std::size_t kSegments = 4;
constexpr std::size_t kPiece = std::size_t{16} * 1024;
constexpr std::uint64_t kCollective = 9;

/// The other rank of a ring of two, played by hand, frame by frame.
class Puppet {
 public:
  explicit Puppet(group::Lane& lane) : lane_(lane), stream_(lane.link(0)) {}

  void send(std::uint32_t step, std::uint32_t piece, std::byte value) {
    const Bytes payload(kPiece, value);
    net::write_exactly(stream_,
                       net::encode_frame_header({.payload_bytes = kPiece,
                                                 .channel = static_cast<std::uint32_t>(lane_.channel()),
                                                 .collective = kCollective,
                                                 .step = step,
                                                 .piece = piece,
                                                 .checksum = xxh3_64(payload)}),
                       lane_.deadline());
    net::write_exactly(stream_, payload, lane_.deadline());
  }

  /// Expects a frame of that place with that value in all its bytes.
  void expect(std::uint32_t step, std::uint32_t piece, std::byte value) {
    net::EncodedFrameHeader encoded;
    net::read_exactly(stream_, encoded, lane_.deadline());
    const net::FrameHeader header = net::decode_frame_header(encoded);
    EXPECT_EQ(header.step, step);
    EXPECT_EQ(header.piece, piece);
    Bytes payload(header.payload_bytes);
    net::read_exactly(stream_, payload, lane_.deadline());
    EXPECT_EQ(payload, Bytes(kPiece, value)) << "step " << step << ", piece " << piece;
  }

 private:
  group::Lane& lane_;
  net::Stream& stream_;
};

TEST(Ring, sends_a_piece_on_before_the_rest_of_its_step_has_come) {
  // The puppet sends the second piece of a step only when it has got the first one back, reduced: a ring that waited
  // for the whole chunk would wait for ever.
  testing::run_ranks(2, testing::a_host_each(2), [](group::Lane& lane) {
    if (lane.rank() == 1) {
      Puppet puppet(lane);
      for (std::uint32_t i = 0; i < kSegments; ++i) {
        puppet.send(0, i, std::byte{3});
        if (i == 0) {
          for (std::uint32_t own = 0; own < kSegments; ++own) puppet.expect(0, own, std::byte{2});
        }
        puppet.expect(1, i, std::byte{5});
      }
      for (std::uint32_t i = 0; i < kSegments; ++i) puppet.send(1, i, std::byte{7});
      return;
    }
    Bytes buffer(2 * kSegments * kPiece, std::byte{2});
    ASSERT_EQ(ring_piece_bytes(buffer.size() / 2), kPiece);
    std::vector<int> published(2 * kSegments);
    std::vector<int> prepared(2 * kSegments);
    const auto counting = [](std::vector<int>& calls) {
      return [&calls](std::size_t offset, std::size_t size) {
        EXPECT_EQ(size, kPiece);
        ++calls[offset / kPiece];
      };
    };
    allreduce_by_ring(lane, kCollective, everybody(lane.topology()), buffer, {.type = DataType::kUint8},
                      {.prepare = counting(prepared), .publish = counting(published)});
    EXPECT_TRUE(std::all_of(buffer.begin(), buffer.begin() + kSegments * kPiece,
                            [](std::byte value) { return value == std::byte{5}; }));
    EXPECT_TRUE(std::all_of(buffer.begin() + kSegments * kPiece, buffer.end(),
                            [](std::byte value) { return value == std::byte{7}; }));
    EXPECT_EQ(prepared, std::vector<int>(2 * kSegments, 1));
    EXPECT_EQ(published, std::vector<int>(2 * kSegments, 1));
  });
}

TEST(Ring, cuts_chunks_in_several_pieces_that_are_neither_tiny_nor_huge) {
  EXPECT_EQ(ring_piece_bytes(0), std::size_t{16} * 1024);
  EXPECT_EQ(ring_piece_bytes(std::size_t{1} << 20), std::size_t{128} * 1024);
  EXPECT_EQ(ring_piece_bytes((std::size_t{1} << 20) + 4), std::size_t{128} * 1024);
  EXPECT_EQ(ring_piece_bytes(std::size_t{1} << 30), kPieceBytes);
}

}  // namespace
}  // namespace gyre::collectives::internal
