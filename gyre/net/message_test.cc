// Control messages are cut out of a flow of bytes that a peer controls: any cut, any damage, any length.
#include "gyre/net/message.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::net {
namespace {

using std::chrono::milliseconds;

ErrorCode code_of(MessageParser& parser) {
  try {
    parser.next();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(Message, the_header_has_the_documented_bytes) {
  const Bytes bytes = encode_message(0x0102, as_bytes("abc"));
  ASSERT_EQ(bytes.size(), kMessageHeaderBytes + 3);
  EXPECT_EQ(as_text(std::span(bytes).first(2)), "GM");
  EXPECT_EQ(std::to_integer<int>(bytes[2]), 0x02);
  EXPECT_EQ(std::to_integer<int>(bytes[3]), 0x01);
  EXPECT_EQ(std::to_integer<int>(bytes[4]), 3);
  EXPECT_EQ(as_text(std::span(bytes).subspan(kMessageHeaderBytes)), "abc");
}

TEST(Message, messages_survive_being_cut_at_every_byte) {
  Bytes flow = encode_message(1, as_bytes("first"));
  const Bytes empty = encode_message(2, {});
  const Bytes last = encode_message(3, as_bytes("the last one"));
  flow.insert(flow.end(), empty.begin(), empty.end());
  flow.insert(flow.end(), last.begin(), last.end());
  for (std::size_t cut = 0; cut <= flow.size(); ++cut) {
    MessageParser parser;
    std::vector<Message> messages;
    for (const auto part : {std::span(flow).first(cut), std::span(flow).subspan(cut)}) {
      parser.append(part);
      while (auto message = parser.next()) messages.push_back(std::move(*message));
    }
    ASSERT_EQ(messages.size(), 3U);
    EXPECT_EQ(messages[0].type, 1);
    EXPECT_EQ(as_text(messages[0].payload), "first");
    EXPECT_EQ(messages[1].payload.size(), 0U);
    EXPECT_EQ(as_text(messages[2].payload), "the last one");
  }
}

TEST(Message, every_damaged_byte_is_noticed) {
  const Bytes good = encode_message(7, as_bytes("payload"));
  for (std::size_t position = 0; position < good.size(); ++position) {
    if (position == 2 || position == 3) continue;  // The type: any is allowed.
    Bytes bytes = good;
    bytes[position] ^= std::byte{1};
    bytes.resize(bytes.size() + 256);  // So that a longer length finds something to check.
    MessageParser parser;
    parser.append(bytes);
    const ErrorCode code = code_of(parser);
    // A length that grew by more than what is there is not noticed before more arrives.
    const bool waits = position >= 5 && position <= 7;
    EXPECT_TRUE(waits || code == ErrorCode::kProtocol || code == ErrorCode::kCorruptData) << position;
  }
}

TEST(Message, an_oversized_length_is_refused_before_anything_is_stored) {
  Bytes bytes = encode_message(7, {});
  bytes[7] = std::byte{0xFF};
  MessageParser parser;
  parser.append(bytes);
  EXPECT_EQ(code_of(parser), ErrorCode::kProtocol);
  auto [left, right] = make_stream_pair({"a", "b"});
  write_exactly(*left, bytes, Deadline::after(milliseconds(20'000)));
  EXPECT_THROW(receive_message(*right, Deadline::after(milliseconds(20'000))), Error);
}

TEST(Message, random_bytes_are_refused_or_waited_for_and_nothing_else) {
  const std::uint64_t seed = 4711;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random.below(64));
    for (std::byte& value : bytes) value = static_cast<std::byte>(random.next_u32());
    if (bytes.size() >= 2 && round % 2 == 0) {
      bytes[0] = std::byte{'G'};
      bytes[1] = std::byte{'M'};
    }
    MessageParser parser;
    parser.append(bytes);
    try {
      EXPECT_FALSE(parser.next().has_value());
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kProtocol || error.code() == ErrorCode::kCorruptData);
    }
  }
}

TEST(Message, a_message_passes_through_a_stream) {
  auto [left, right] = make_stream_pair({"a", "b"});
  send_message(*left, 9, as_bytes("hello"), Deadline::after(milliseconds(20'000)));
  const Message message = receive_message(*right, Deadline::after(milliseconds(20'000)));
  EXPECT_EQ(message.type, 9);
  EXPECT_EQ(as_text(message.payload), "hello");
}

}  // namespace
}  // namespace gyre::net
