// Why: two ranks that send to each other more than the sockets hold must not wait for each other, and a piece must
// be worked on as soon as it is there.
#include "gyre/collectives/internal/links/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gyre/base/checksum.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/net/frame.h"

namespace gyre::collectives::internal {
namespace {

Bytes pattern(std::size_t count, std::uint64_t stream) {
  return testing::random_elements(DataType::kUint8, count, testing::test_seed(), stream);
}

TEST(Exchange, moves_more_than_the_sockets_hold_both_ways_at_once) {
  testing::run_ranks(2, testing::a_host_each(2), [](group::Lane& lane) {
    const int peer = 1 - lane.rank();
    const Bytes own = pattern(std::size_t{16} << 20, static_cast<std::uint64_t>(lane.rank()));
    Bytes arrived(own.size());
    Outgoing outgoing(lane, peer, {99, 0}, own);
    Incoming incoming(lane, peer, {99, 0}, arrived);
    exchange(lane, {&outgoing, 1}, {&incoming, 1});
    EXPECT_TRUE(arrived == pattern(own.size(), static_cast<std::uint64_t>(peer)));
    const std::uint64_t frames = own.size() / kPieceBytes;
    EXPECT_EQ(lane.counters().bytes_sent, own.size() + frames * net::kFrameHeaderBytes);
    EXPECT_EQ(lane.counters().bytes_received, lane.counters().bytes_sent);
  });
}

TEST(Exchange, hands_pieces_to_the_sink_in_order_one_by_one) {
  testing::run_ranks(2, testing::a_host_each(2), [](group::Lane& lane) {
    const std::size_t size = 2 * kPieceBytes + 5;
    if (lane.rank() == 0) {
      const Bytes own = pattern(size, 0);
      Outgoing outgoing(lane, 1, {5, 2}, own);
      exchange(lane, {&outgoing, 1}, {});
      return;
    }
    Bytes scratch(kPieceBytes);
    Bytes collected;
    std::vector<std::size_t> offsets;
    Incoming incoming(lane, 0, {5, 2}, size, scratch, [&](std::size_t offset, std::span<const std::byte> piece) {
      offsets.push_back(offset);
      collected.insert(collected.end(), piece.begin(), piece.end());
    });
    exchange(lane, {}, {&incoming, 1});
    EXPECT_EQ(offsets, (std::vector<std::size_t>{0, kPieceBytes, 2 * kPieceBytes}));
    EXPECT_TRUE(collected == pattern(size, 0));
  });
}

TEST(Exchange, forwards_a_piece_before_the_rest_has_come) {
  // Rank 1 relays from 0 to 2. Rank 0 sends the second piece only when rank 2 has said that it has the first: a relay
  // that waited for the whole range would wait for ever.
  testing::run_ranks(3, testing::a_host_each(3), [](group::Lane& lane) {
    const Bytes whole = pattern(2 * kPieceBytes, 0);
    const FramePlace place{5, 0};
    open_links(lane, {0, 1, 2});
    if (lane.rank() == 0) {
      for (std::size_t i = 0; i < 2; ++i) {
        const std::span<const std::byte> piece = std::span(whole).subspan(i * kPieceBytes, kPieceBytes);
        const auto header = net::encode_frame_header({.payload_bytes = kPieceBytes,
                                                      .channel = 7,
                                                      .collective = place.collective,
                                                      .step = place.step,
                                                      .piece = static_cast<std::uint32_t>(i),
                                                      .checksum = xxh3_64(piece)});
        net::write_exactly(lane.link(1), header, lane.deadline());
        net::write_exactly(lane.link(1), piece, lane.deadline());
        Bytes said(1);
        if (i == 0) net::read_exactly(lane.link(2), said, lane.deadline());
      }
    } else if (lane.rank() == 1) {
      Bytes buffer(whole.size());
      Incoming incoming(lane, 0, place, buffer);
      Outgoing outgoing(lane, 2, place, buffer, &incoming);
      exchange(lane, {&outgoing, 1}, {&incoming, 1});
    } else {
      Bytes scratch(kPieceBytes);
      const PieceSink say = [&](std::size_t offset, std::span<const std::byte> piece) {
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(offset)));
        if (offset == 0) net::write_exactly(lane.link(0), Bytes(1), lane.deadline());
      };
      Incoming incoming(lane, 1, place, whole.size(), scratch, say);
      exchange(lane, {}, {&incoming, 1});
    }
  });
}

TEST(Exchange, opens_links_in_any_arrangement_without_a_circle) {
  for (int size = 2; size <= 8; ++size) {
    testing::run_ranks(size, testing::a_host_each(size), [&](group::Lane& lane) {
      // Each rank asks in its own order; opened in that order, ring neighbours would wait in a circle.
      std::vector<int> peers;
      for (int distance = 1; distance < size; ++distance) peers.push_back((lane.rank() + distance) % size);
      open_links(lane, peers);
      for (const int peer : peers) EXPECT_GE(lane.link(peer).fd(), 0);
    });
  }
}

}  // namespace
}  // namespace gyre::collectives::internal
