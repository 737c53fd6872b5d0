// Streams carry every byte between ranks: these tests pin down order, closing and deadlines.
#include "gyre/net/stream.h"

#include <gtest/gtest.h>

#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

using std::chrono::milliseconds;

TEST(Stream, carries_bytes_in_order_in_both_directions_at_once) {
  auto [left, right] = make_stream_pair({"right", "left"});
  constexpr std::size_t kBytes = std::size_t{4} << 20;  // More than any socket buffer.
  const auto exchange = [](Stream& stream, std::byte base) {
    Bytes outgoing(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) outgoing[i] = static_cast<std::byte>(i * 31) ^ base;
    Bytes incoming(kBytes);
    const Deadline deadline = Deadline::after(milliseconds(20'000));
    std::thread writer([&] { write_exactly(stream, outgoing, deadline); });
    read_exactly(stream, incoming, deadline);
    writer.join();
    return incoming;
  };
  Bytes at_right;
  std::thread other([&, &peer = *right] { at_right = exchange(peer, std::byte{0xAA}); });
  const Bytes at_left = exchange(*left, std::byte{0x55});
  other.join();
  for (std::size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(at_left[i], static_cast<std::byte>(i * 31) ^ std::byte{0xAA});
    ASSERT_EQ(at_right[i], static_cast<std::byte>(i * 31) ^ std::byte{0x55});
  }
}

TEST(Stream, reading_from_a_closed_peer_first_gives_what_it_sent_and_then_names_it) {
  auto [left, right] = make_stream_pair({"rank 7", "rank 3"});
  write_exactly(*right, as_bytes("last words"), Deadline::after(milliseconds(20'000)));
  right.reset();
  Bytes incoming(10);
  read_exactly(*left, incoming, Deadline::after(milliseconds(20'000)));
  EXPECT_EQ(as_text(incoming), "last words");
  try {
    left->read_some(incoming);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_STREQ(error.what(), "rank 7 closed the connection");
  }
}

TEST(Stream, writing_to_a_closed_peer_is_an_error_and_not_a_signal) {
  auto [left, right] = make_stream_pair({"rank 7", "rank 3"});
  right.reset();
  try {
    left->write_some(as_bytes("hello"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_NE(std::string(error.what()).find("rank 7"), std::string::npos);
  }
}

TEST(Stream, a_silent_peer_ends_in_a_timeout_that_names_it) {
  auto [left, right] = make_stream_pair({"rank 7", "rank 3"});
  Bytes incoming(1);
  EXPECT_EQ(left->read_some(incoming), 0U);
  const auto start = SteadyClock::now();
  try {
    read_exactly(*left, incoming, Deadline::after(milliseconds(30)));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("rank 7"), std::string::npos);
  }
  EXPECT_GE(SteadyClock::now() - start, milliseconds(30));
}

}  // namespace
}  // namespace gyre::net
