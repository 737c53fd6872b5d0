// What leaves a host must be unreadable and unchangeable for others, and otherwise behave as any stream.
#include "gyre/net/psk_tls.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"

namespace gyre::net {
namespace {

using std::chrono::milliseconds;

const Deadline kSoon = Deadline::after(milliseconds(20'000));

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Goes on with both sides in turns until both are through; what they throw comes out.
void shake_hands(TlsSession& connector, int connector_fd, TlsSession& acceptor, int acceptor_fd) {
  for (int round = 0; round < 100; ++round) {
    const short first = connector.advance(connector_fd);
    const short second = acceptor.advance(acceptor_fd);
    if (first == 0 && second == 0) return;
  }
  FAIL() << "the handshake does not end";
}

struct Fixture {
  Fixture() {
    Nonce nonce{};
    nonce[0] = std::byte{7};
    transcript.opening = encode_opening({3, 2, 9, 4}, nonce);
    transcript.answer = make_answer(key, transcript.opening, 0, nonce);
  }
  JobKey key = make_random_key();
  Transcript transcript;
  TlsOptions options;

  std::shared_ptr<TlsSession> session(TlsSession::Side side) const {
    return std::make_shared<TlsSession>(side, key, transcript, options);
  }
};

/// Two ends of an encrypted connection.
struct Pair {
  explicit Pair(const Fixture& fixture = {}) {
    auto [left_fd, right_fd] = socket_pair();
    left_session = fixture.session(TlsSession::Side::kConnector);
    right_session = fixture.session(TlsSession::Side::kAcceptor);
    shake_hands(*left_session, left_fd.get(), *right_session, right_fd.get());
    left = make_tls_stream(std::move(left_fd), left_session, "right");
    right = make_tls_stream(std::move(right_fd), right_session, "left");
  }
  std::shared_ptr<TlsSession> left_session;
  std::shared_ptr<TlsSession> right_session;
  std::unique_ptr<Stream> left;
  std::unique_ptr<Stream> right;
};

/// 3 MB in both directions at once; checks what arrives.
void exchange_megabytes(Pair& pair) {
  constexpr std::size_t kBytes = std::size_t{3} << 20;  // More than any socket buffer.
  const auto exchange = [](Stream& stream, std::byte base) {
    Bytes outgoing(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) outgoing[i] = static_cast<std::byte>(i * 31) ^ base;
    Bytes incoming(kBytes);
    std::thread writer([&] { write_exactly(stream, outgoing, kSoon); });
    read_exactly(stream, incoming, kSoon);
    writer.join();
    return incoming;
  };
  Bytes at_right;
  std::thread other([&] { at_right = exchange(*pair.right, std::byte{0xAA}); });
  const Bytes at_left = exchange(*pair.left, std::byte{0x55});
  other.join();
  for (std::size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(at_left[i], static_cast<std::byte>(i * 31) ^ std::byte{0xAA});
    ASSERT_EQ(at_right[i], static_cast<std::byte>(i * 31) ^ std::byte{0x55});
  }
}

TEST(Tls, carries_bytes_in_order_in_both_directions_at_once) {
  Pair pair;
  exchange_megabytes(pair);
  EXPECT_EQ(pair.left_session->keys_replaced(), 0U);
}

TEST(Tls, both_sides_replace_their_keys_while_bytes_flow) {
  // AES-GCM is not safe for ever under one key. Here it lasts for four records; 3 MB are 192.
  Fixture fixture;
  fixture.options.records_per_key = 4;
  Pair pair(fixture);
  exchange_megabytes(pair);
  EXPECT_GE(pair.left_session->keys_replaced(), 192U / 4);
  EXPECT_GE(pair.right_session->keys_replaced(), 192U / 4);
  // By default long before the limit of RFC 8446, section 5.5: 2^24.5 records.
  EXPECT_LE(TlsOptions{}.records_per_key, 23'726'566U / 16);
}

TEST(Tls, leaves_nothing_inside_that_poll_would_not_see) {
  Pair pair;
  // Several records; read in one call that asks for more than there is.
  for (int i = 0; i < 5; ++i) write_exactly(*pair.left, Bytes(20'000, std::byte{1}), kSoon);
  wait_for(pair.right->fd(), POLLIN, kSoon, "bytes");
  Bytes incoming(200'000);
  EXPECT_EQ(pair.right->read_some(incoming), 100'000U);
  EXPECT_EQ(pair.right->read_some(incoming), 0U);
}

TEST(Tls, leaves_what_comes_right_behind_the_handshake_where_poll_sees_it) {
  const Fixture fixture;
  auto [left_fd, right_fd] = socket_pair();
  auto connector = fixture.session(TlsSession::Side::kConnector);
  auto acceptor = fixture.session(TlsSession::Side::kAcceptor);
  EXPECT_EQ(connector->advance(left_fd.get()), POLLIN);
  EXPECT_EQ(acceptor->advance(right_fd.get()), POLLIN);
  EXPECT_EQ(connector->advance(left_fd.get()), 0);
  const auto left = make_tls_stream(std::move(left_fd), std::move(connector), "right");
  write_exactly(*left, as_bytes("at once"), kSoon);
  EXPECT_EQ(acceptor->advance(right_fd.get()), 0);
  const auto right = make_tls_stream(std::move(right_fd), std::move(acceptor), "left");
  wait_for(right->fd(), POLLIN, Deadline::after(milliseconds(20'000)), "what came at once");
  Bytes incoming(7);
  read_exactly(*right, incoming, kSoon);
  EXPECT_EQ(as_text(incoming), "at once");
}

TEST(Tls, shows_others_neither_the_bytes_nor_the_key) {
  const Fixture fixture;
  auto [left_fd, near_fd] = socket_pair();
  auto [far_fd, right_fd] = socket_pair();
  auto left = fixture.session(TlsSession::Side::kConnector);
  auto right = fixture.session(TlsSession::Side::kAcceptor);
  Bytes seen;
  // Somebody in the middle who hands on what passes.
  const auto pass = [&](int from, int to) {
    Bytes chunk(100'000);
    const ssize_t count = ::recv(from, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count <= 0) return;
    seen.insert(seen.end(), chunk.begin(), chunk.begin() + count);
    ASSERT_EQ(::send(to, chunk.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL), count);
  };
  for (int round = 0; round < 20; ++round) {
    const short waits = static_cast<short>(left->advance(left_fd.get()) | right->advance(right_fd.get()));
    pass(near_fd.get(), far_fd.get());
    pass(far_fd.get(), near_fd.get());
    if (waits == 0) break;
  }
  const auto from = make_tls_stream(std::move(left_fd), std::move(left), "right");
  const auto to = make_tls_stream(std::move(right_fd), std::move(right), "left");
  const Bytes secret(as_bytes("gradients are nobody's business").begin(),
                     as_bytes("gradients are nobody's business").end());
  write_exactly(*from, secret, kSoon);
  pass(near_fd.get(), far_fd.get());
  Bytes received(secret.size());
  read_exactly(*to, received, kSoon);
  EXPECT_EQ(received, secret);
  EXPECT_EQ(std::search(seen.begin(), seen.end(), secret.begin(), secret.end()), seen.end());
  EXPECT_EQ(std::search(seen.begin(), seen.end(), fixture.key.begin(), fixture.key.end()), seen.end());

  // One bit turned on the way.
  write_exactly(*from, secret, kSoon);
  Bytes record(1000);
  const ssize_t count = ::recv(near_fd.get(), record.data(), record.size(), 0);
  ASSERT_GT(count, 20);
  record[static_cast<std::size_t>(count) - 20] ^= std::byte{1};
  ASSERT_EQ(::send(far_fd.get(), record.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL), count);
  try {
    read_exactly(*to, received, kSoon);
    FAIL() << "damaged bytes were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
    EXPECT_NE(std::string(error.what()).find("left"), std::string::npos) << error.what();
  }
}

TEST(Tls, refuses_another_key_and_another_handshake) {
  const Fixture ours;
  Fixture other_key;
  Fixture other_handshake = ours;
  other_handshake.transcript.opening[71] ^= std::byte{1};
  for (const Fixture& theirs : {other_key, other_handshake}) {
    auto [left_fd, right_fd] = socket_pair();
    auto connector = ours.session(TlsSession::Side::kConnector);
    auto acceptor = theirs.session(TlsSession::Side::kAcceptor);
    try {
      shake_hands(*connector, left_fd.get(), *acceptor, right_fd.get());
      ADD_FAILURE() << "strangers have met";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAuthentication) << error.what();
    }
  }
}

TEST(Tls, a_closed_peer_first_gives_what_it_sent_and_is_then_named) {
  Pair pair;
  write_exactly(*pair.right, as_bytes("last words"), kSoon);
  pair.right.reset();
  Bytes incoming(10);
  read_exactly(*pair.left, incoming, kSoon);
  EXPECT_EQ(as_text(incoming), "last words");
  for (int call = 0; call < 2; ++call) {
    try {
      pair.left->read_some(incoming);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
      EXPECT_NE(std::string(error.what()).find("right"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) write_exactly(*pair.left, Bytes(100'000), kSoon);
      },
      Error);
}

TEST(Tls, a_peer_that_goes_during_the_handshake_is_lost) {
  const Fixture fixture;
  auto [left_fd, right_fd] = socket_pair();
  auto connector = fixture.session(TlsSession::Side::kConnector);
  EXPECT_EQ(connector->advance(left_fd.get()), POLLIN);
  right_fd.reset();
  try {
    connector->advance(left_fd.get());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost) << error.what();
  }
}

/// Of this process, as the kernel counts it.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(Tls, an_idle_end_of_a_link_holds_no_buffers) {
  // A rank of a thousand has a thousand links: 105 KB each were 105 MB, most of them buffers without a byte in them.
  constexpr std::size_t kEnds = 1'000;
  {
    Pair shared;
  }  // What OpenSSL makes once.
  const std::size_t before = resident_bytes();
  std::vector<std::unique_ptr<Pair>> pairs;
  for (std::size_t i = 0; i < kEnds / 2; ++i) {
    pairs.push_back(std::make_unique<Pair>());
    Bytes incoming(300'000);
    std::thread reader([&, &stream = *pairs.back()->right] { read_exactly(stream, incoming, kSoon); });
    write_exactly(*pairs.back()->left, Bytes(incoming.size(), std::byte{1}), kSoon);
    reader.join();
  }
  const std::size_t per_end = (resident_bytes() - before) / kEnds;
  RecordProperty("bytes_per_end", static_cast<int>(per_end));
  std::cout << per_end << " bytes per idle end\n";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(per_end, 24'000U);
#endif
}

}  // namespace
}  // namespace gyre::net
