// Requests for streams come from clients and from the network: what goes in comes out, and nonsense is refused.
#include "gyre/jobs/orders/byte_stream.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gyre/base/error.h"

namespace gyre::jobs::orders {
namespace {

net::Message message_of(std::uint16_t type, const Bytes& payload) { return {.type = type, .payload = payload}; }

StreamRequest there_and_back(const StreamRequest& request) {
  const net::Message message = message_of(stream_message::kOpen, encode_stream(1, as_bytes(encode(request))));
  return stream_request_from(stream_message_from(message));
}

TEST(StreamRequests, one_for_a_port_and_one_for_a_command_are_the_same_after_their_way) {
  EXPECT_EQ(there_and_back({.attempt = "a-1", .port = 80}), (StreamRequest{.attempt = "a-1", .port = 80}));
  StreamRequest request{.attempt = "a-1"};
  request.command = {.words = {"sh", "-c", "echo \"ä\"\n", ""}, .rank = 3};
  EXPECT_EQ(there_and_back(request), request);
  request.command->rank.reset();
  request.command->terminal = {.type = "xterm-256color", .size = {.columns = 132, .rows = 43}};
  EXPECT_EQ(there_and_back(request), request);
}

TEST(StreamRequests, a_command_that_no_node_would_take_is_refused_before_it_is_sent) {
  EXPECT_FALSE(unsendable({.words = {"true"}}));
  EXPECT_TRUE(unsendable({.words = {std::string(CommandRequest::kMostBytes, 'x')}}));
  EXPECT_TRUE(unsendable({.words = std::vector<std::string>(CommandRequest::kMostWords + 1)}));
  EXPECT_TRUE(unsendable({.words = {"\xff"}}));
  StreamRequest longest{.attempt = "a-1"};  // Each byte takes six of JSON.
  longest.command = {.words = {std::string(CommandRequest::kMostBytes - 1, '\x01')}};
  ASSERT_FALSE(unsendable(*longest.command));
  EXPECT_EQ(there_and_back(longest), longest);
}

TEST(StreamRequests, nonsense_is_refused) {
  using nlohmann::json;
  for (const json& bad :
       {json(), json::object(), json{{"words", "ls"}}, json{{"words", {1}}}, json{{"words", {std::string("a\0b", 3)}}},
        json{{"words", {"ls"}}, {"rank", -1}}, json{{"words", {"ls"}}, {"terminal", 1}},
        json{{"words", {"ls"}}, {"terminal", {{"type", "xterm"}, {"columns", 70'000}, {"rows", 1}}}},
        json{{"words", {std::string(CommandRequest::kMostBytes, 'x')}}}}) {
    EXPECT_THROW(command_request_from_json(bad), Error) << bad.dump();
  }
}

TEST(StreamMessages, a_size_and_an_exit_code_come_back_and_other_codes_are_refused) {
  const net::Message size = message_of(stream_message::kSize, encode_size(1, {.columns = 100, .rows = 30}));
  EXPECT_EQ(size_from(stream_message_from(size)), (TerminalSize{.columns = 100, .rows = 30}));
  const net::Message exit = message_of(stream_message::kExit, encode_exit(1, 255));
  EXPECT_EQ(exit_from(stream_message_from(exit)), 255);
  const net::Message other = message_of(stream_message::kExit, encode_exit(1, 256));
  EXPECT_THROW(exit_from(stream_message_from(other)), Error);
  EXPECT_THROW(stream_message_from(message_of(stream_message::kErrors, encode_stream(1))), Error);
  EXPECT_THROW(stream_message_from(message_of(stream_message::kExit + 1, encode_stream(1))), Error);
}

}  // namespace
}  // namespace gyre::jobs::orders
