// Events must arrive as they were sent, whatever pieces the network makes of them and whatever they contain.
#include "gyre/net/http/event_stream.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/net/http/error.h"

namespace gyre::net::http {
namespace {

std::vector<ServerEvent> parse(std::string_view text, std::size_t piece) {
  EventParser parser;
  std::vector<ServerEvent> events;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    parser.append(text.substr(at, piece));
    while (auto event = parser.next()) events.push_back(*event);
  }
  return events;
}

TEST(EventStream, events_survive_any_cut) {
  const std::vector<ServerEvent> sent{
      {"1", "job", "{\"state\":\"running\"}"}, {"2", "", "two\nlines\n"}, {"3", "x", ""}};
  std::string text;
  for (const ServerEvent& event : sent) text += encode_event(event);
  for (std::size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(parse(text, piece), sent) << piece;
}

TEST(EventStream, every_line_end_of_the_standard_is_one) {
  const std::vector<ServerEvent> expected{{"7", "n", "a\nb"}};
  for (const std::string end : {"\n", "\r", "\r\n"}) {
    const std::string text =
        ":comment" + end + "id:7" + end + "event: n" + end + "data: a" + end + "data:b" + end + end;
    for (std::size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(parse(text + end, piece), expected) << piece;
  }
}

TEST(EventStream, the_last_id_and_the_retry_time_stay) {
  EventParser parser;
  parser.append("\xef\xbb\xbfid: 5\nretry: 250\ndata: a\n\ndata: b\n\nretry: soon\nid: 6\n\n");
  EXPECT_EQ(parser.next(), (ServerEvent{"5", "", "a"}));
  EXPECT_EQ(parser.next(), (ServerEvent{"5", "", "b"}));
  EXPECT_FALSE(parser.next().has_value());
  EXPECT_EQ(parser.last_id(), "6");
  EXPECT_EQ(parser.retry(), std::chrono::milliseconds(250));
}

TEST(EventStream, an_event_cannot_contain_another_one) {
  EXPECT_THROW(encode_event({"1\ndata: x", "", ""}), Error);
  EXPECT_THROW(encode_event({"", "a\rb", ""}), Error);
  EXPECT_EQ(parse(encode_event({"1", "", "x\n\nid: 9\ndata: y"}), 3).size(), 1U);
}

TEST(EventStream, an_endless_event_is_refused) {
  EventParser parser;
  const std::string line = "data: " + std::string(65'536, 'x') + "\n";
  EXPECT_THROW(
      {
        for (std::size_t sent = 0; sent <= EventParser::kMostEventBytes; sent += line.size()) parser.append(line);
      },
      Error);
}

TEST(EventStream, a_last_event_id_has_a_limit) {
  Request request;
  EXPECT_FALSE(last_event_id(request).has_value());
  request.headers.set("Last-Event-ID", "17");
  EXPECT_EQ(last_event_id(request), "17");
  request.headers.set("Last-Event-ID", std::string(129, '1'));
  EXPECT_THROW(last_event_id(request), HttpError);
}

}  // namespace
}  // namespace gyre::net::http
