// The node's end of a stream: between a socket of the job's, which may do anything, and messages, it keeps no more than
// the window.
#include "gyre/jobs/node/internal/byte_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/jobs/orders/cut_off.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::node::internal {
namespace {

namespace stream_message = orders::stream_message;
using testing::HasSubstr;

constexpr std::chrono::seconds kLongest{30};
constexpr std::uint32_t kStream = 7;

class ByteStreamsTest : public testing::Test {
 protected:
  ByteStreamsTest() { streams_.serve("job-1", std::nullopt, send_); }

  void obey(std::uint16_t type, std::span<const std::byte> bytes) {
    EXPECT_TRUE(streams_.obey({.type = type, .payload = orders::encode_stream(kStream, bytes)}, send_));
  }
  void open(const std::string& attempt, std::uint16_t port) {
    obey(stream_message::kOpen, as_bytes(encode(orders::StreamRequest{.attempt = attempt, .port = port})));
  }
  void open() {
    listener_ = net::listen_on(net::parse_endpoint("tcp:127.0.0.1:0"));
    open("job-1", net::local_endpoint(listener_.get()).port);
    wait_for(listener_.get());
    socket_ = net::accept_from(listener_.get());
  }
  static void wait_for(int fd) {
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, 10'000);
  }
  void expect_reset() const {
    wait_for(socket_.get());
    char byte = 0;
    EXPECT_EQ(::recv(socket_.get(), &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
  }
  /// Until it holds.
  template <typename Condition>
  void step_until(const Condition& condition) {
    const Deadline deadline = Deadline::after(kLongest);
    while (!condition() && !deadline.passed()) {
      pollfd wait{.fd = streams_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, 10);
      streams_.step(send_);
    }
    ASSERT_TRUE(condition());
  }

  /// A command of the job, whose process this test is.
  void open_command() {
    const orders::StreamRequest request{.attempt = "job-1", .command = orders::CommandRequest{.words = {"ls"}}};
    obey(stream_message::kOpen, as_bytes(encode(request)));
  }
  void say(std::uint16_t type, std::span<const std::byte> bytes) {
    const Bytes message = net::encode_message(type, orders::encode_stream(0, bytes));
    ASSERT_EQ(::send(served_.get(), message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
  }

  UniqueFd served_;  // The end of the process that serves a command.
  ByteStreams streams_{[this](const orders::CommandRequest& command) {
    if (!refusal_.empty()) throw Error(ErrorCode::kInvalidArgument, refusal_);
    EXPECT_EQ(command.words, std::vector<std::string>{"ls"});
    std::array<int, 2> ends;
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    served_ = UniqueFd(ends[1]);
    return UniqueFd(ends[0]);
  }};
  std::string refusal_;
  std::string errors_;
  std::optional<int> code_;
  UniqueFd listener_;
  UniqueFd socket_;  // The job's end.
  std::string bytes_;
  std::uint64_t credit_ = 0;
  bool ended_ = false;
  std::optional<std::string> closed_;
  const ByteStreams::Send send_ = [this](std::uint16_t type, std::span<const std::byte> payload) {
    const net::Message message{.type = type, .payload = Bytes(payload.begin(), payload.end())};
    const orders::StreamMessage part = orders::stream_message_from(message);
    EXPECT_EQ(part.stream, kStream);
    if (type == stream_message::kBytes) bytes_ += as_text(part.bytes);
    if (type == stream_message::kErrors) errors_ += as_text(part.bytes);
    if (type == stream_message::kExit) code_ = exit_from(part);
    if (type == stream_message::kCredit) credit_ += credit_from(part);
    if (type == stream_message::kEnd) ended_ = true;
    if (type == stream_message::kClosed) closed_ = std::string(as_text(part.bytes));
  };
};

TEST_F(ByteStreamsTest, bytes_pass_both_ways_in_pieces_of_any_length_and_each_end_is_told) {
  const std::uint64_t seed = 20261129;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  open();
  std::string down;
  std::string got;
  std::string up;
  for (int round = 0; round < 200; ++round) {
    const std::string piece(1 + random.below(500), static_cast<char>('a' + round % 26));
    obey(stream_message::kBytes, as_bytes(piece));
    down += piece;
    const std::string answer(1 + random.below(500), static_cast<char>('A' + round % 26));
    ASSERT_EQ(::send(socket_.get(), answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
    up += answer;
    if (random.below(4) == 0) streams_.step(send_);
  }
  obey(stream_message::kEnd, {});
  step_until([&] {
    std::string part(1'000, ' ');
    const ssize_t count = ::recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (count > 0) got += part.substr(0, static_cast<std::size_t>(count));
    return count == 0 && bytes_.size() == up.size();
  });
  EXPECT_EQ(got, down);
  EXPECT_EQ(bytes_, up);
  EXPECT_EQ(credit_, down.size());
  EXPECT_FALSE(ended_);
  socket_.reset();
  step_until([&] { return closed_.has_value(); });
  EXPECT_TRUE(ended_);
  EXPECT_EQ(*closed_, "");
}

TEST_F(ByteStreamsTest, without_credit_nothing_is_read_and_a_socket_that_takes_nothing_gives_none) {
  open();
  const std::string piece(orders::kMostStreamPieceBytes, 'x');
  std::uint64_t sent = 0;
  const Deadline deadline = Deadline::after(kLongest);
  while (bytes_.size() < orders::kStreamWindow && !deadline.passed()) {
    const ssize_t count = ::send(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count > 0) sent += static_cast<std::uint64_t>(count);
    streams_.step(send_);
  }
  for (int i = 0; i < 10; ++i) streams_.step(send_);
  EXPECT_EQ(bytes_.size(), orders::kStreamWindow);
  EXPECT_GT(sent, 0U);
  // What the kernel takes is credited; the window is all that waits here.
  std::uint64_t given = 0;
  while (given < credit_ + orders::kStreamWindow - piece.size()) {
    obey(stream_message::kBytes, as_bytes(piece));
    given += piece.size();
  }
  EXPECT_THROW(for (int i = 0; i < 100; ++i) obey(stream_message::kBytes, as_bytes(piece)), Error);
}

TEST_F(ByteStreamsTest, a_port_where_nothing_listens_and_another_attempt_are_refused_with_the_reason) {
  open("job-1", 1);
  step_until([&] { return closed_.has_value(); });
  EXPECT_EQ(*closed_, "nothing listens at port 1 of the node");
  open("job-2", 1);
  EXPECT_THAT(*closed_, HasSubstr("does not run on the node any more"));
}

TEST_F(ByteStreamsTest, streams_end_with_their_job) {
  open();
  streams_.serve("", std::nullopt, send_);
  EXPECT_EQ(closed_, "the job has ended");
  expect_reset();
}

// A program that reads to the end would otherwise take the part that it got for all.
TEST_F(ByteStreamsTest, a_stream_that_ends_early_resets_the_program_s_connection) {
  open();
  obey(stream_message::kBytes, as_bytes(std::string_view("part")));
  step_until([&] { return credit_ == 4; });
  obey(stream_message::kClosed, {});  // The client has gone, or its connection to the service.
  std::array<char, 4> part;
  ASSERT_EQ(::recv(socket_.get(), part.data(), part.size(), 0), 4);
  expect_reset();
  open();
  streams_.disconnected();
  expect_reset();
}

TEST_F(ByteStreamsTest, a_program_that_resets_its_connection_is_no_end_even_if_that_is_noticed_when_writing) {
  open();
  orders::reset_when_closed(socket_.get());
  socket_.reset();
  obey(stream_message::kBytes, as_bytes(std::string_view("more")));
  obey(stream_message::kBytes, as_bytes(std::string_view("and more")));
  step_until([&] { return closed_.has_value(); });
  EXPECT_FALSE(ended_);
  EXPECT_THAT(*closed_, HasSubstr("of the node: "));
}

TEST_F(ByteStreamsTest, a_command_is_asked_for_where_it_runs_and_its_messages_pass) {
  open_command();
  net::MessageParser asked;
  std::array<char, 4096> bytes;
  const ssize_t count = ::recv(served_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  ASSERT_GT(count, 0);
  asked.append(as_bytes({bytes.data(), static_cast<std::size_t>(count)}));
  const auto first = asked.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(stream_request_from(orders::stream_message_from(*first)).command->words, std::vector<std::string>{"ls"});
  obey(stream_message::kBytes, as_bytes("typed"));
  const Bytes credit = orders::encode_credit(0, 5);
  say(stream_message::kCredit, std::span(credit).subspan(4));
  say(stream_message::kBytes, as_bytes("out"));
  say(stream_message::kErrors, as_bytes("bad"));
  say(stream_message::kExit, std::span(credit).subspan(4));
  say(stream_message::kClosed, {});
  step_until([&] { return closed_.has_value(); });
  EXPECT_EQ(bytes_, "out");
  EXPECT_EQ(errors_, "bad");
  EXPECT_EQ(credit_, 5U);
  EXPECT_EQ(code_, 5);
  EXPECT_EQ(*closed_, "");
}

// It has the job's account, so that it may be anything, and must not cost the node its connection to the service.
TEST_F(ByteStreamsTest, a_process_that_sends_what_it_must_not_ends_its_stream_alone) {
  const Bytes one = orders::encode_credit(0, 1);
  const std::string piece(orders::kMostStreamPieceBytes, 'x');
  const std::vector<std::function<void()>> wrongs = {
      [&] { say(stream_message::kCredit, std::span(one).subspan(4)); },
      [&] { say(stream_message::kEnd, {}); },
      [&] { say(stream_message::kSize, std::span(one).subspan(4)); },
      [&] { ::send(served_.get(), piece.data(), piece.size(), MSG_DONTWAIT); },
      [&] {
        for (std::uint64_t sent = 0; sent <= orders::kStreamWindow; sent += piece.size()) {
          say(stream_message::kErrors, as_bytes(piece));
          streams_.step(send_);
        }
      },
  };
  for (const auto& wrong : wrongs) {
    closed_.reset();
    open_command();
    wrong();
    step_until([&] { return closed_.has_value(); });
    EXPECT_THAT(*closed_, HasSubstr("sends what it must not"));
  }
  closed_.reset();
  open_command();
  served_.reset();
  step_until([&] { return closed_.has_value(); });
  EXPECT_THAT(*closed_, HasSubstr("has ended"));
}

TEST_F(ByteStreamsTest, a_command_that_cannot_run_is_refused_with_the_reason) {
  refusal_ = "the job is still being prepared";
  open_command();
  EXPECT_EQ(closed_, refusal_);
}

}  // namespace
}  // namespace gyre::jobs::node::internal
