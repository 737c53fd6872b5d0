// Streams carry every byte between ranks: these tests pin down order, closing and deadlines.
#include "gyre/net/stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/net/handshake.h"
#include "gyre/net/psk_tls.h"
#include "gyre/net/socket.h"

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

/// What `action` throws.
Error failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, "none"};
}

/// Plain sockets and TLS keep one promise: what has failed stays failed.
class FailedStream : public testing::TestWithParam<bool> {
 protected:
  FailedStream() {
    std::tie(left_, right_) = make_stream_pair({"rank 7", "rank 3"});
    if (!GetParam()) return;
    const JobKey key = make_random_key();
    Transcript transcript;
    transcript.opening = encode_opening({}, Nonce{});
    transcript.answer = make_answer(key, transcript.opening, 0, Nonce{});
    auto connector = std::make_shared<TlsSession>(TlsSession::Side::kConnector, key, transcript);
    auto acceptor = std::make_shared<TlsSession>(TlsSession::Side::kAcceptor, key, transcript);
    short waits = 1;
    while (waits != 0) {
      waits = connector->advance(left_->fd());
      waits = static_cast<short>(waits | acceptor->advance(right_->fd()));
    }
    left_ = make_tls_stream(UniqueFd(::dup(left_->fd())), connector, "rank 7");
    right_ = make_tls_stream(UniqueFd(::dup(right_->fd())), acceptor, "rank 3");
  }

  static Deadline soon() { return Deadline::after(milliseconds(20'000)); }
  static Deadline now() { return Deadline::after(milliseconds(0)); }

  std::unique_ptr<Stream> left_;
  std::unique_ptr<Stream> right_;
};

TEST_P(FailedStream, a_message_that_was_written_half_is_the_last_use_of_its_stream) {
  const Error first = failure_of([&] { write_exactly(*left_, Bytes(std::size_t{8} << 20, std::byte{'a'}), now()); });
  EXPECT_EQ(first.code(), ErrorCode::kTimeout);
  Bytes some(10);
  const auto uses = {std::function<void()>([&] { write_exactly(*left_, as_bytes("shorter"), soon()); }),
                     std::function<void()>([&] { left_->write_some(Bytes(std::size_t{9} << 20)); }),
                     std::function<void()>([&] { left_->read_some(some); })};
  for (const auto& use : uses) {
    const Error again = failure_of(use);
    EXPECT_EQ(again.code(), first.code());
    EXPECT_STREQ(again.what(), first.what());
  }
  // The other side gets a part of it, and nothing behind.
  left_.reset();
  Bytes arrived(std::size_t{8} << 20);
  std::size_t total = 0;
  failure_of([&] {
    for (;;) {
      const std::size_t count = right_->read_some(arrived);
      EXPECT_TRUE(std::all_of(arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(count),
                              [](std::byte value) { return value == std::byte{'a'}; }));
      total += count;
    }
  });
  EXPECT_LT(total, arrived.size());
}

TEST_P(FailedStream, what_a_lost_peer_has_sent_is_read_after_a_write_has_failed) {
  write_exactly(*right_, as_bytes("last words"), soon());
  right_.reset();
  const auto write = [&](std::size_t size) {
    return failure_of([&] {
      while (true) left_->write_some(Bytes(size));
    });
  };
  const Error first = write(200'000);
  EXPECT_EQ(first.code(), ErrorCode::kPeerLost);
  for (const std::size_t size : {300'000, 10, 1}) EXPECT_STREQ(write(size).what(), first.what());
  Bytes incoming(10);
  if (GetParam()) return;  // Bytes of this side that the peer has not read make the kernel drop the peer's.
  read_exactly(*left_, incoming, soon());
  EXPECT_EQ(as_text(incoming), "last words");
  EXPECT_EQ(failure_of([&] { left_->read_some(incoming); }).code(), ErrorCode::kPeerLost);
}

TEST_P(FailedStream, a_message_that_was_read_half_is_the_last_use_too_and_a_wait_for_one_is_not) {
  Bytes incoming(10);
  EXPECT_EQ(failure_of([&] { read_exactly(*left_, incoming, now()); }).code(), ErrorCode::kTimeout);
  write_exactly(*right_, as_bytes("0123456789"), soon());
  read_exactly(*left_, incoming, soon());
  EXPECT_EQ(as_text(incoming), "0123456789");
  write_exactly(*right_, as_bytes("half"), soon());
  wait_for(left_->fd(), POLLIN, soon(), "half a message");
  const Error first = failure_of([&] { read_exactly(*left_, incoming, now()); });
  EXPECT_EQ(first.code(), ErrorCode::kTimeout);
  write_exactly(*right_, as_bytes(" a message"), soon());
  EXPECT_STREQ(failure_of([&] { read_exactly(*left_, incoming, soon()); }).what(), first.what());
  EXPECT_STREQ(failure_of([&] { write_exactly(*left_, as_bytes("x"), soon()); }).what(), first.what());
}

TEST_P(FailedStream, the_first_cause_is_kept) {
  left_->fail(Error(ErrorCode::kAborted, "the first"));
  left_->fail(Error(ErrorCode::kTimeout, "the second"));
  EXPECT_STREQ(failure_of([&] { left_->write_some(as_bytes("x")); }).what(), "the first");
  Bytes incoming(1);
  EXPECT_EQ(failure_of([&] { left_->read_some(incoming); }).code(), ErrorCode::kAborted);
}

INSTANTIATE_TEST_SUITE_P(Encryption, FailedStream, testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "tls" : "plain"; });

}  // namespace
}  // namespace gyre::net
