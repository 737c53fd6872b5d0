// Rank 0 sends the same messages to thousands of ranks: those that read slowly must not cost it a copy each, and must
// get every byte in order all the same.
#include "gyre/net/async/message_connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <utility>
#include <vector>

#include "gyre/base/random.h"
#include "gyre/net/socket.h"

namespace gyre::net {
namespace {

Deadline soon() { return Deadline::after(std::chrono::milliseconds(20'000)); }

/// A connection, and the other end as a stream that reads when the test does.
struct Pair {
  std::shared_ptr<MessageConnection> connection;
  std::unique_ptr<Stream> reader;
};

Pair connect(asio::io_context& context) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {std::make_shared<MessageConnection>(adopt_socket(context, UniqueFd(ends[0]))),
          make_socket_stream(UniqueFd(ends[1]), "a slow reader")};
}

Bytes random_bytes(Random& random, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& value : bytes) value = static_cast<std::byte>(random.next_u32());
  return bytes;
}

/// Reads the next message while the other side's event loop runs, a few bytes at a time.
Message read_while_it_runs(asio::io_context& context, Stream& reader, MessageParser& parser) {
  const Deadline deadline = soon();
  Bytes chunk(1 << 16);
  for (;;) {
    if (auto message = parser.next()) return std::move(*message);
    EXPECT_FALSE(deadline.passed());
    if (deadline.passed()) return {};
    context.restart();
    context.poll();
    parser.append(std::span(chunk).first(reader.read_some(chunk)));
  }
}

TEST(MessageConnection, slow_readers_share_one_copy_of_what_goes_to_all) {
  constexpr std::size_t kReaders = 16;
  asio::io_context context;
  Random random(1);
  const Bytes payload = random_bytes(random, std::size_t{4} << 20);  // More than a socket takes.
  SharedMessage message = share_message(7, payload);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < kReaders; ++i) pairs.push_back(connect(context));
  for (const Pair& pair : pairs) pair.connection->send(message);
  EXPECT_EQ(message.use_count(), static_cast<long>(kReaders + 1));
  for (const Pair& pair : pairs) {
    MessageParser parser;
    const Message received = read_while_it_runs(context, *pair.reader, parser);
    EXPECT_EQ(received.type, 7);
    EXPECT_TRUE(received.payload == payload);
  }
  context.restart();
  context.poll();
  EXPECT_EQ(message.use_count(), 1);  // What has been sent is let go of.
  pairs.front().connection->send(message);
  EXPECT_EQ(message.use_count(), 2);
  pairs.front().connection->close();
  pairs.clear();
}

TEST(MessageConnection, shared_and_own_messages_arrive_whole_and_in_order) {
  constexpr std::uint64_t kSeed = 26;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  asio::io_context context;
  const std::array<Bytes, 2> shared{random_bytes(random, 100'000), random_bytes(random, 0)};
  const std::array<SharedMessage, 2> messages{share_message(100, shared[0]), share_message(101, shared[1])};
  for (int round = 0; round < 20; ++round) {
    const Pair pair = connect(context);
    std::vector<Bytes> sent;
    MessageParser parser;
    std::size_t received = 0;
    for (int turn = 0; turn < 60; ++turn) {
      if (const std::uint64_t which = random.below(4); which < 2) {
        pair.connection->send(messages[which]);
        sent.push_back(shared[which]);
      } else {
        sent.push_back(random_bytes(random, random.below(300'000)));
        pair.connection->send(5, sent.back());
      }
      if (random.below(3) > 0) continue;
      const std::size_t until = received + random.below(sent.size() - received + 1);
      for (; received < until; ++received) {
        EXPECT_TRUE(read_while_it_runs(context, *pair.reader, parser).payload == sent[received]);
      }
    }
    for (; received < sent.size(); ++received) {
      EXPECT_TRUE(read_while_it_runs(context, *pair.reader, parser).payload == sent[received]);
    }
  }
}

TEST(MessageConnection, a_reader_that_never_reads_is_cut_off) {
  asio::io_context context;
  const Pair pair = connect(context);
  const SharedMessage message = share_message(1, Bytes(std::size_t{60} << 20));
  for (int i = 0; i < 4; ++i) pair.connection->send(message);
  EXPECT_TRUE(pair.connection->socket()->is_open());
  for (int i = 0; i < 2; ++i) pair.connection->send(message);
  EXPECT_FALSE(pair.connection->socket()->is_open());
}

}  // namespace
}  // namespace gyre::net
