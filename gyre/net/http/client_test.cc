// The command line's way to the service: it must take up what the network drops, and never lose or repeat a byte.
#include "gyre/net/http/client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "gyre/net/http/error.h"
#include "gyre/net/http/file_response.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Router echo_router() {
  Router router;
  router.add(
      {.method = Method::kGet, .pattern = "/hello", .handler = [](Request&) { return Response{.body = "hello"}; }});
  router.add({.method = Method::kPut,
              .pattern = "/echo/{name}",
              .handler =
                  [](Request& request) {
                    const std::string* type = request.headers.find("X-Type");
                    return Response{.status = 201,
                                    .body = request.parameter("name") + (type ? *type : "") + request.body};
                  },
              .body_bytes = 1'000'000});
  router.add({.method = Method::kGet, .pattern = "/gone", .handler = [](Request&) -> Response {
                throw HttpError(404, "JobNotFound", "there is no job", "j");
              }});
  return router;
}

ClientOptions options_for(const Endpoint& endpoint) {
  return {.endpoint = endpoint, .connect = milliseconds(10'000), .silence = milliseconds(10'000)};
}

TEST(Client, sends_and_receives) {
  const Server server(loopback_options(), echo_router());
  Client client(options_for(server.endpoints()[0]));
  EXPECT_EQ(client.send({.target = parse_target("/hello")}).body, "hello");
  const ClientResponse response = client.send(
      {.method = Method::kPut, .target = {{"echo", "a b%"}, {}}, .headers = {{"X-Type", "!"}}, .body = "body"});
  EXPECT_EQ(response.status, 201);
  EXPECT_EQ(response.body, "a b%!body");
  const ClientResponse head = client.send({.method = Method::kHead, .target = parse_target("/hello")});
  EXPECT_EQ(*head.headers.find("content-length"), "5");
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(client.send({.target = parse_target("/hello")}).body, "hello");
}

TEST(Client, sends_files) {
  Router router;
  router.add({.method = Method::kPut,
              .pattern = "/upload",
              .handler = [](Request& request) { return Response{.body = std::to_string(request.body_bytes)}; },
              .body_bytes = 10'000'000,
              .body_to_file = true});
  const Server server(loopback_options(), std::move(router));
  Client client(options_for(server.endpoints()[0]));
  UniqueFd file(::open(std::filesystem::temp_directory_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 3'000'001), 0);
  EXPECT_EQ(client.send({.method = Method::kPut, .target = parse_target("/upload"), .body_file = &file}).body,
            "3000001");
}

TEST(Client, an_error_of_the_server_is_an_exception_with_its_parts) {
  const Server server(loopback_options(), echo_router());
  Client client(options_for(server.endpoints()[0]));
  try {
    client.send({.target = parse_target("/gone")});
    ADD_FAILURE() << "no error";
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 404);
    EXPECT_EQ(error.name(), "JobNotFound");
    EXPECT_EQ(error.target(), "j");
    EXPECT_STREQ(error.what(), "there is no job");
  }
  EXPECT_EQ(client.send({.target = parse_target("/hello")}).body, "hello");
}

TEST(Client, hears_why_a_large_body_was_refused) {
  const Server server(loopback_options(), echo_router());
  Client client(options_for(server.endpoints()[0]));
  try {
    client.send({.method = Method::kPut, .target = parse_target("/echo/x"), .body = std::string(20'000'000, 'x')});
    ADD_FAILURE() << "no error";
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 413);
  }
}

TEST(Client, says_where_nobody_listens) {
  ClientOptions options{.endpoint = parse_endpoint("tcp:127.0.0.1:1"), .connect = milliseconds(200)};
  Client client(std::move(options));
  try {
    client.send({.target = parse_target("/")});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:1"), std::string::npos) << error.what();
  }
}

/// Answers each connection with the next of `answers` and closes it.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers)
      : listener_(listen_on(parse_endpoint("tcp:127.0.0.1:0"))), thread_([this, answers] { run(answers); }) {}
  ~ScriptedServer() { thread_.join(); }

  Endpoint endpoint() const { return local_endpoint(listener_.get()); }
  std::vector<std::string> requests;  // Once the script is over.

 private:
  void run(const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
      wait_for(listener_.get(), POLLIN, Deadline::after(seconds(30)), "a client");
      const UniqueFd client = accept_from(listener_.get());
      std::string request;
      while (request.find("\r\n\r\n") == std::string::npos) {
        wait_for(client.get(), POLLIN, Deadline::after(seconds(30)), "a request");
        char byte = 0;
        if (::recv(client.get(), &byte, 1, 0) != 1) break;
        request.push_back(byte);
      }
      requests.push_back(request);
      ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  UniqueFd listener_;
  std::thread thread_;
};

TEST(Client, a_server_that_talks_nonsense_is_one_clear_error) {
  for (const std::string answer : {"", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "SSH-2.0-OpenSSH\r\n",
                                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
                                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    ScriptedServer server({answer});
    Client client(options_for(server.endpoint()));
    EXPECT_THROW(client.send({.target = parse_target("/")}), Error) << answer;
  }
}

TEST(Client, a_body_larger_than_the_limit_is_refused) {
  const std::string body(10'000, 'x');
  ScriptedServer server({"HTTP/1.1 200 OK\r\n\r\n" + body});
  ClientOptions options = options_for(server.endpoint());
  options.most_body_bytes = 9'999;
  Client client(std::move(options));
  EXPECT_THROW(client.send({.target = parse_target("/")}), Error);
}

TEST(Client, reads_what_comes_after_100_continue) {
  ScriptedServer server({"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"});
  Client client(options_for(server.endpoint()));
  EXPECT_EQ(client.send({.target = parse_target("/")}).body, "ok");
}

TEST(Client, a_followed_file_goes_on_where_the_connection_broke) {
  const std::string start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  // The euro sign is cut twice: by a chunk and by the loss of the connection.
  ScriptedServer server({start + "3\r\nab\xe2\r\n", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
                         start + "1\r\n\x82\r\n",
                         start + "2\r\n\xac"
                                 "c\r\n0\r\n\r\n"});
  std::vector<std::string> pieces;
  std::uint64_t end = 0;
  {
    Client client(options_for(server.endpoint()));
    end = client.follow({{"log"}, {{"id", "x"}}}, 7, [&](std::string_view bytes) { pieces.emplace_back(bytes); });
  }
  EXPECT_EQ(end, 13U);
  EXPECT_EQ(pieces, (std::vector<std::string>{"ab",
                                              "\xe2\x82\xac"
                                              "c"}));
  ASSERT_EQ(server.requests.size(), 4U);
  EXPECT_TRUE(server.requests[0].starts_with("GET /log?id=x&follow=true&offset=7 ")) << server.requests[0];
  EXPECT_TRUE(server.requests[3].starts_with("GET /log?id=x&follow=true&offset=11 ")) << server.requests[3];
}

TEST(Client, a_stream_that_does_not_come_back_is_an_error) {
  ScriptedServer server({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"});
  ClientOptions options = options_for(server.endpoint());
  options.connect = milliseconds(100);
  options.silence = milliseconds(100);
  options.reconnect = milliseconds(500);
  Client client(std::move(options));
  std::string received;
  EXPECT_THROW(client.follow({{"log"}, {}}, 0, [&](std::string_view bytes) { received += bytes; }), Error);
  EXPECT_EQ(received, "abc");
}

TEST(Client, events_go_on_after_the_last_one) {
  const std::string start = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
  ScriptedServer server(
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\nretry: 10\nid: 4\ndata: a\n\ndata: b\r\n",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf\r\nid: 5\ndata: b\n\n\r\n0\r\n\r\n"});
  std::vector<ServerEvent> events;
  {
    Client client(options_for(server.endpoint()));
    client.events({{"events"}, {}}, "3", [&](const ServerEvent& event) {
      events.push_back(event);
      return true;
    });
  }
  EXPECT_EQ(events, (std::vector<ServerEvent>{{"4", "", "a"}, {"5", "", "b"}}));
  EXPECT_NE(server.requests[0].find("Last-Event-ID: 3\r\n"), std::string::npos);
  EXPECT_NE(server.requests[1].find("Last-Event-ID: 4\r\n"), std::string::npos);
}

TEST(Client, a_receiver_that_has_enough_ends_the_events) {
  ScriptedServer server({"HTTP/1.1 200 OK\r\n\r\ndata: a\n\ndata: b\n\n"});
  Client client(options_for(server.endpoint()));
  int count = 0;
  client.events({{"events"}, {}}, "", [&](const ServerEvent&) { return ++count < 1; });
  EXPECT_EQ(count, 1);
}

TEST(Client, a_wait_can_be_interrupted) {
  std::promise<void> go_on;
  Router router;
  router.add({.method = Method::kGet,
              .pattern = "/",
              .handler = [released = std::shared_future<void>(go_on.get_future())](Request&) {
                released.wait();
                return Response();
              }});
  const Server server(loopback_options(), std::move(router));
  ClientOptions options = options_for(server.endpoints()[0]);
  const Deadline interrupt = Deadline::after(milliseconds(200));
  options.meanwhile = [&] {
    if (interrupt.passed()) throw Error(ErrorCode::kAborted, "interrupted");
  };
  Client client(std::move(options));
  try {
    client.send({.target = parse_target("/")});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
  }
  go_on.set_value();
}

TEST(Client, a_kept_connection_that_the_server_closed_is_made_anew) {
  ServerOptions options = loopback_options();
  options.limits.idle = milliseconds(100);
  const Server server(std::move(options), echo_router());
  Client client(options_for(server.endpoints()[0]));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.send({.target = parse_target("/hello")}).body, "hello");
    std::this_thread::sleep_for(milliseconds(250));  // Longer than the server keeps an idle connection.
  }
}

}  // namespace
}  // namespace gyre::net::http
