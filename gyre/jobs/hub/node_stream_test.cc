// A stream passes through the service between two sides that may both be hostile: whatever they send, and however it is
// cut, it keeps no more than the window.
#include "gyre/jobs/hub/node_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::jobs::hub {
namespace {

namespace stream_message = orders::stream_message;

class NodeStreamTest : public testing::Test {
 protected:
  void deliver(std::uint16_t type, const std::string& bytes) {
    stream_->deliver({.type = type, .stream = 7, .bytes = as_bytes(bytes)});
  }
  void take(std::uint16_t type, const std::string& bytes) {
    stream_->take(as_text(net::encode_message(type, orders::encode_stream(0, as_bytes(bytes)))));
  }
  static std::string credit(std::uint32_t bytes) {
    const Bytes payload = orders::encode_credit(0, bytes);
    return std::string(as_text(payload).substr(4));
  }

  std::vector<std::pair<std::uint16_t, std::string>> to_node_;
  std::unique_ptr<NodeStream> stream_ = std::make_unique<NodeStream>(
      [this](std::uint16_t type, const Bytes& bytes) { to_node_.emplace_back(type, as_text(bytes)); });
};

// Both directions at once, in pieces of any length, with credit given at random.
TEST_F(NodeStreamTest, what_both_sides_send_arrives_in_order_however_it_is_cut) {
  const std::uint64_t seed = 20261129;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const auto text = [&](std::size_t size) {
    std::string bytes(size, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random.below(256));
    return bytes;
  };
  std::string up;  // From the client, encoded, and not taken yet.
  std::string sent_up;
  std::string sent_down;
  std::string got_down;
  net::MessageParser client;
  for (int round = 0; round < 1'000; ++round) {
    const std::string piece = text(1 + random.below(100));
    up += as_text(net::encode_message(stream_message::kBytes, orders::encode_stream(0, as_bytes(piece))));
    sent_up += piece;
    const std::size_t part = random.below(static_cast<std::uint32_t>(up.size() + 1));
    stream_->take(std::string_view(up).substr(0, part));
    up.erase(0, part);
    const std::string answer = text(1 + random.below(100));
    deliver(stream_message::kBytes, answer);
    sent_down += answer;
    client.append(as_bytes(stream_->read(random.below(300)).bytes));
    while (const auto message = client.next()) got_down += as_text(orders::stream_message_from(*message).bytes);
  }
  stream_->take(up);
  client.append(as_bytes(stream_->read(SIZE_MAX).bytes));
  while (const auto message = client.next()) got_down += as_text(orders::stream_message_from(*message).bytes);
  std::string got_up;
  for (const auto& [type, bytes] : to_node_) got_up += bytes;
  EXPECT_EQ(got_up, sent_up);
  EXPECT_EQ(got_down, sent_down);
}

TEST_F(NodeStreamTest, a_side_that_sends_more_than_there_is_room_for_is_refused_and_credit_makes_room) {
  const std::string piece(orders::kMostStreamPieceBytes, 'x');
  const std::size_t most = orders::kStreamWindow / piece.size();
  for (std::size_t i = 0; i < most; ++i) {
    take(stream_message::kBytes, piece);
    deliver(stream_message::kBytes, piece);
  }
  EXPECT_THROW(deliver(stream_message::kBytes, "x"), Error);
  deliver(stream_message::kCredit, credit(1));
  take(stream_message::kBytes, "x");
  EXPECT_THROW(take(stream_message::kBytes, "x"), Error);
  EXPECT_LE(stream_->read(SIZE_MAX).bytes.size(), orders::kStreamWindow + 1'000);
}

TEST_F(NodeStreamTest, nobody_gives_credit_for_what_has_not_come_or_sends_behind_the_end) {
  EXPECT_THROW(take(stream_message::kCredit, credit(1)), Error);
  EXPECT_THROW(deliver(stream_message::kCredit, credit(1)), Error);
  EXPECT_THROW(take(stream_message::kOpen, "{}"), Error);
  EXPECT_THROW(deliver(stream_message::kOpen, "{}"), Error);
  take(stream_message::kEnd, "");
  EXPECT_THROW(take(stream_message::kBytes, "x"), Error);
}

TEST_F(NodeStreamTest, what_a_command_says_on_stderr_has_a_window_of_its_own_and_it_exits_once) {
  const std::string piece(orders::kMostStreamPieceBytes, 'x');
  for (std::size_t sent = 0; sent < orders::kStreamWindow; sent += piece.size()) {
    deliver(stream_message::kBytes, piece);
    deliver(stream_message::kErrors, piece);
  }
  EXPECT_THROW(deliver(stream_message::kErrors, "x"), Error);
  take(stream_message::kErrorsCredit, credit(1));
  deliver(stream_message::kErrors, "x");
  EXPECT_THROW(deliver(stream_message::kBytes, "x"), Error);
  take(stream_message::kErrorsCredit, credit(orders::kStreamWindow));
  EXPECT_THROW(take(stream_message::kErrorsCredit, credit(1)), Error);
  EXPECT_THROW(take(stream_message::kErrors, "x"), Error);
  deliver(stream_message::kExit, credit(7));
  EXPECT_THROW(deliver(stream_message::kExit, credit(7)), Error);
  EXPECT_THROW(take(stream_message::kExit, credit(7)), Error);
}

// A client may say it as often as it likes, and must not fill anybody's memory.
TEST_F(NodeStreamTest, sizes_of_a_terminal_take_of_the_window) {
  const std::string size(orders::kSizeBytes, 'x');
  for (std::size_t i = 0; i < orders::kStreamWindow / size.size(); ++i) take(stream_message::kSize, size);
  EXPECT_THROW(take(stream_message::kSize, size), Error);
  deliver(stream_message::kCredit, credit(orders::kSizeBytes));
  take(stream_message::kSize, size);
  EXPECT_THROW(take(stream_message::kSize, "x"), Error);
}

TEST_F(NodeStreamTest, the_end_comes_behind_everything_else_with_its_reason_and_wakes_the_reader) {
  int woken = 0;
  stream_->set_wake([&] { ++woken; });
  deliver(stream_message::kBytes, "last");
  deliver(stream_message::kClosed, "the job has ended");
  EXPECT_EQ(woken, 2);
  const NodeStream::Piece piece = stream_->read(SIZE_MAX);
  EXPECT_TRUE(piece.end);
  EXPECT_NE(piece.bytes.find("last"), std::string::npos);
  EXPECT_TRUE(piece.bytes.ends_with("the job has ended"));
}

TEST_F(NodeStreamTest, a_client_that_goes_is_told_to_the_node_once) {
  stream_.reset();
  ASSERT_EQ(to_node_.size(), 1U);
  EXPECT_EQ(to_node_[0].first, stream_message::kClosed);
}

}  // namespace
}  // namespace gyre::jobs::hub
