// What a well-behaved client may rely on: answers in order, bodies, ranges, streams, a stop that loses nothing.
#include "gyre/net/http/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "gyre/base/thread_annotations.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/event_stream.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

using std::chrono::milliseconds;

Route get_route(std::string pattern, Handler handler) {
  return {.method = Method::kGet, .pattern = std::move(pattern), .handler = std::move(handler)};
}

Router echo_router() {
  Router router;
  router.add(get_route("/hello/{name}", [](Request& request) {
    return json_response(200, "\"hello " + request.parameter("name") + "\"");
  }));
  router.add({.method = Method::kPut,
              .pattern = "/echo",
              .handler = [](Request& request) { return Response{.body = request.body}; },
              .query = {"a"},
              .body_bytes = 100'000});
  return router;
}

TEST(Server, answers_one_request_after_another_on_a_connection) {
  const Server server(loopback_options(), echo_router());
  RawClient client(server.endpoints()[0]);
  for (const std::string name : {"a", "b"}) {
    const std::string response = client.ask(get("/hello/" + name));
    EXPECT_EQ(status_of(response), "200");
    EXPECT_EQ(body_of(response), "\"hello " + name + "\"");
    EXPECT_NE(response.find("Content-Type: application/json\r\n"), std::string::npos);
    EXPECT_EQ(response.find("Connection: close"), std::string::npos);
  }
}

TEST(Server, answers_pipelined_requests_in_their_order) {
  const Server server(loopback_options(), echo_router());
  RawClient client(server.endpoints()[0]);
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += get("/hello/" + std::to_string(i));
  client.write(requests);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(body_of(client.read_response()), "\"hello " + std::to_string(i) + "\"");
}

TEST(Server, takes_bodies_with_a_length_and_in_chunks) {
  const Server server(loopback_options(), echo_router());
  RawClient client(server.endpoints()[0]);
  const std::string body(70'000, 'x');
  EXPECT_EQ(body_of(client.ask("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n" + body)), body);
  EXPECT_EQ(body_of(client.ask("PUT /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")),
            "abcde");
  client.write("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(body_of(client.ask("ok")), "ok");
}

TEST(Server, puts_large_bodies_into_a_file_without_a_name) {
  Router router;
  router.add({.method = Method::kPut,
              .pattern = "/upload",
              .handler =
                  [](Request& request) {
                    std::string bytes(request.body_bytes, '\0');
                    std::size_t count = 0;
                    while (count < bytes.size()) {
                      const ssize_t some = ::read(request.body_file.get(), bytes.data() + count, bytes.size() - count);
                      if (some <= 0) break;
                      count += static_cast<std::size_t>(some);
                    }
                    struct stat status{};
                    ::fstat(request.body_file.get(), &status);
                    const bool whole = count == bytes.size() && bytes.find_first_not_of('y') == std::string::npos;
                    return Response{.body = std::to_string(count) + (whole ? " y" : " ?") +
                                            std::to_string(status.st_nlink)};
                  },
              .body_bytes = 10'000'000,
              .body_to_file = true});
  const Server server(loopback_options(), std::move(router));
  RawClient client(server.endpoints()[0]);
  const std::string head = "PUT /upload HTTP/1.1\r\nHost: h\r\nContent-Length: ";
  EXPECT_EQ(body_of(client.ask(head + "5000000\r\n\r\n" + std::string(5'000'000, 'y'))), "5000000 y0");
  EXPECT_EQ(body_of(client.ask(head + "0\r\n\r\n")), "0 y0");
}

TEST(Server, head_is_get_without_a_body) {
  const Server server(loopback_options(), echo_router());
  RawClient client(server.endpoints()[0]);
  client.write("HEAD /hello/x HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 9\r\n"), std::string::npos) << head;
  EXPECT_EQ(status_of(client.ask(get("/hello/x"))), "200");
}

TEST(Server, says_what_is_wrong_with_a_request) {
  const Server server(loopback_options(), echo_router());
  RawClient client(server.endpoints()[0]);
  EXPECT_EQ(status_of(client.ask(get("/nothing"))), "404");
  const std::string wrong_method = client.ask("DELETE /hello/x HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(status_of(wrong_method), "405");
  EXPECT_NE(wrong_method.find("Allow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(status_of(client.ask("BREW /hello/x HTTP/1.1\r\nHost: h\r\n\r\n")), "405");
  const std::string unknown = client.ask(get("/hello/x?b=1"));
  EXPECT_EQ(status_of(unknown), "400");
  EXPECT_NE(unknown.find("there is no parameter 'b'"), std::string::npos);
  EXPECT_EQ(status_of(client.ask(get("/hello/x"))), "200");
}

TEST(Server, a_failing_handler_is_an_answer) {
  Router router;
  router.add(get_route("/internal", [](Request&) -> Response { throw Error(ErrorCode::kIo, "disk 7 is on fire"); }));
  router.add(get_route("/conflict", [](Request&) -> Response { throw HttpError(409, "Taken", "it exists", "x"); }));
  const Server server(loopback_options(), std::move(router));
  RawClient client(server.endpoints()[0]);
  const std::string internal = client.ask(get("/internal"));
  EXPECT_EQ(status_of(internal), "500");
  EXPECT_EQ(internal.find("fire"), std::string::npos);
  const std::string conflict = client.ask(get("/conflict"));
  EXPECT_EQ(status_of(conflict), "409");
  EXPECT_NE(conflict.find("\"code\":\"Taken\""), std::string::npos);
}

TEST(Server, tokens_decide_before_anything_is_said) {
  ServerOptions options = loopback_options();
  options.authenticate = [](const Credentials& credentials) {
    return credentials.token == "right" ? std::optional(Identity{"ada"}) : std::nullopt;
  };
  Router router;
  router.add(get_route("/who", [](Request& request) { return Response{.body = request.sender.user}; }));
  Route open = get_route("/health", [](Request&) { return Response{.body = "well"}; });
  open.open = true;
  router.add(std::move(open));
  const Server server(std::move(options), std::move(router));
  RawClient client(server.endpoints()[0]);
  EXPECT_EQ(body_of(client.ask(get("/who", "Authorization: Bearer right\r\n"))), "ada");
  EXPECT_EQ(body_of(client.ask(get("/who", "authorization: bearer right\r\n"))), "ada");
  EXPECT_EQ(body_of(client.ask(get("/health"))), "well");
  for (const char* header :
       {"", "Authorization: Bearer wrong\r\n", "Authorization: Basic right\r\n", "Authorization: right\r\n",
        "Authorization: Bearer right \r\nAuthorization: Bearer right\r\n", "Authorization: Bearer \r\n"}) {
    for (const char* path : {"/who", "/nothing"}) {
      const std::string response = client.ask(get(path, header));
      EXPECT_EQ(status_of(response), "401") << path << " " << header;
      EXPECT_NE(response.find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
    }
  }
}

TEST(Server, on_a_unix_socket_the_peers_account_is_who_asks_unless_there_is_a_token) {
  const std::string path = fmt::format("/tmp/gyre-http-test-{}.sock", ::getpid());
  ServerOptions options = loopback_options();
  options.endpoints.push_back({Endpoint::Kind::kUnix, path, 0});
  options.socket_mode = 0666;
  options.authenticate = [](const Credentials& credentials) -> std::optional<Identity> {
    if (credentials.token == "right") return Identity{"ada"};
    if (!credentials.token.empty()) return std::nullopt;
    if (credentials.account == ::geteuid()) return Identity{"myself"};
    throw HttpError(401, "Unauthorized", "nobody has this account");
  };
  Router router;
  router.add(get_route("/who", [](Request& request) { return Response{.body = request.sender.user}; }));
  const Server server(std::move(options), std::move(router));
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0666U);
  RawClient over_unix(server.endpoints()[1]);
  EXPECT_EQ(body_of(over_unix.ask(get("/who"))), "myself");
  EXPECT_EQ(body_of(over_unix.ask(get("/who", "Authorization: Bearer right\r\n"))), "ada");
  for (const char* header : {"Authorization: Bearer wrong\r\n", "Authorization: Basic right\r\n"}) {
    EXPECT_EQ(status_of(over_unix.ask(get("/who", header))), "401") << header;
  }
  RawClient over_tcp(server.endpoints()[0]);
  EXPECT_EQ(status_of(over_tcp.ask(get("/who"))), "401");
  if (::geteuid() != 0) return;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65'534) != 0 || ::setuid(65'534) != 0) ::_exit(1);
    RawClient nobody(server.endpoints()[1]);
    ::_exit(nobody.ask(get("/who")).find("nobody has this account") != std::string::npos ? 0 : 2);
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(WEXITSTATUS(ended), 0);
}

/// Gives `pieces` pieces of a megabyte in all, and counts.
class CountingSource : public BodySource {
 public:
  CountingSource(std::atomic<int>& asked, int pieces) : asked_(asked), left_(pieces) {}

  Piece read(std::size_t most_bytes) override {
    ++asked_;
    return {.bytes = std::string(most_bytes, 'z'), .end = --left_ == 0};
  }

 private:
  std::atomic<int>& asked_;
  int left_;
};

TEST(Server, a_slow_reader_slows_the_source_down) {
  std::atomic<int> asked = 0;
  constexpr int kPieces = 1'000;  // 62 MB: more than sockets hold.
  Router router;
  router.add(get_route("/stream", [&](Request&) {
    Response response;
    response.source = std::make_shared<CountingSource>(asked, kPieces);
    return response;
  }));
  const Server server(loopback_options(), std::move(router));
  RawClient client(server.endpoints()[0]);
  client.write(get("/stream"));
  EXPECT_NE(client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  // The source stands still once the sockets are full, far from its end.
  for (int before = -1; before != asked.load();) {
    before = asked.load();
    std::this_thread::sleep_for(milliseconds(200));
  }
  EXPECT_LT(asked.load(), kPieces / 2);
  const std::string body = client.read_until("\r\n0\r\n\r\n");
  EXPECT_EQ(asked.load(), kPieces);
  EXPECT_GT(body.size(), std::size_t{kPieces} * 65'536);
}

TEST(Server, a_client_of_http_1_0_gets_a_stream_without_chunks) {
  std::atomic<int> asked = 0;
  Router router;
  router.add(get_route("/stream", [&](Request&) {
    Response response;
    response.source = std::make_shared<CountingSource>(asked, 2);
    return response;
  }));
  const Server server(loopback_options(), std::move(router));
  RawClient client(server.endpoints()[0]);
  client.write("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(body_of(client.read_all()), std::string(131'072, 'z'));
}

/// Hands out events that the test makes.
class TestFeed : public EventFeed {
 public:
  Batch take(std::size_t most) override {
    const MutexLock lock(mutex_);
    Batch batch;
    while (!events_.empty() && batch.events.size() < most) {
      batch.events.push_back(events_.front());
      events_.erase(events_.begin());
    }
    batch.end = ended_ && events_.empty();
    return batch;
  }
  void set_wake(std::function<void()> wake) override {
    const MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }
  milliseconds poll_interval() const override { return std::chrono::hours(1); }

  void publish(ServerEvent event, bool end = false) {
    std::function<void()> wake;
    {
      const MutexLock lock(mutex_);
      events_.push_back(std::move(event));
      ended_ = end;
      wake = wake_;
    }
    if (wake) wake();
  }

 private:
  Mutex mutex_;
  std::vector<ServerEvent> events_ GYRE_GUARDED_BY(mutex_);
  bool ended_ GYRE_GUARDED_BY(mutex_) = false;
  std::function<void()> wake_ GYRE_GUARDED_BY(mutex_);
};

Router feed_router(const std::shared_ptr<TestFeed>& feed, milliseconds heartbeat = std::chrono::hours(1)) {
  Router router;
  router.add(get_route("/events", [feed, heartbeat](Request&) { return event_stream(feed, heartbeat); }));
  router.add(get_route("/other", [](Request&) { return Response{.body = "other"}; }));
  return router;
}

TEST(Server, events_arrive_when_they_happen) {
  const auto feed = std::make_shared<TestFeed>();
  const Server server(loopback_options(), feed_router(feed));
  RawClient client(server.endpoints()[0]);
  client.write(get("/events"));
  EXPECT_NE(client.read_until("\r\n\r\n").find("Content-Type: text/event-stream\r\n"), std::string::npos);
  for (int i = 0; i < 50; ++i) {
    feed->publish({std::to_string(i), "job", "x"});
    client.read_until("id: " + std::to_string(i) + "\nevent: job\ndata: x\n\n");
  }
  feed->publish({"last", "", ""}, true);
  EXPECT_NE(client.read_until("\r\n0\r\n\r\n").find("id: last"), std::string::npos);
  EXPECT_EQ(body_of(client.ask(get("/other"))), "other");
}

TEST(Server, a_quiet_stream_has_a_heartbeat) {
  const auto feed = std::make_shared<TestFeed>();
  const Server server(loopback_options(), feed_router(feed, milliseconds(50)));
  RawClient client(server.endpoints()[0]);
  client.write(get("/events"));
  client.read_until("\r\n\r\n");
  EXPECT_EQ(client.read_until(":\n\n"), "3\r\n:\n\n");
  EXPECT_EQ(client.read_until(":\n\n"), "\r\n3\r\n:\n\n");
}

TEST(Server, two_hundred_streams_leave_the_handlers_free) {
  const auto feed = std::make_shared<TestFeed>();
  const Server server(loopback_options(), feed_router(feed));
  std::vector<RawClient> followers;
  for (int i = 0; i < 200; ++i) {
    followers.emplace_back(server.endpoints()[0]).write(get("/events"));
    followers.back().read_until("\r\n\r\n");
  }
  RawClient client(server.endpoints()[0]);
  EXPECT_EQ(body_of(client.ask(get("/other"))), "other");
}

TEST(Server, forgets_a_stream_whose_client_has_left) {
  std::atomic<int> alive = 0;
  struct Feed : TestFeed {
    explicit Feed(std::atomic<int>& count) : alive(count) { ++alive; }
    ~Feed() override { --alive; }
    std::atomic<int>& alive;
  };
  Router router;
  router.add(get_route("/events", [&](Request&) { return event_stream(std::make_shared<Feed>(alive)); }));
  const Server server(loopback_options(), std::move(router));
  {
    RawClient client(server.endpoints()[0]);
    client.write(get("/events"));
    client.read_until("\r\n\r\n");
    EXPECT_EQ(alive.load(), 1);
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (alive.load() > 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(alive.load(), 0);
}

TEST(Server, a_stop_lets_requests_finish_and_ends_the_rest) {
  const auto feed = std::make_shared<TestFeed>();
  std::promise<void> started;
  std::promise<void> go_on;
  Router router = feed_router(feed);
  router.add(get_route("/slow", [&](Request&) {
    started.set_value();
    go_on.get_future().wait();
    return Response{.body = "done"};
  }));
  Server server(loopback_options(), std::move(router));
  RawClient idle(server.endpoints()[0]);
  RawClient stream(server.endpoints()[0]);
  RawClient slow(server.endpoints()[0]);
  EXPECT_EQ(body_of(idle.ask(get("/other"))), "other");
  stream.write(get("/events"));
  stream.read_until("\r\n\r\n");
  slow.write(get("/slow"));
  started.get_future().wait();
  std::thread stopper([&] { server.stop(std::chrono::seconds(30)); });
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_EQ(stream.read_all().find("\r\n0\r\n"),
            std::string::npos);  // Cut off: the client knows that more was to come.
  go_on.set_value();
  const std::string last = slow.read_all();
  EXPECT_EQ(body_of(last), "done");
  EXPECT_NE(last.find("Connection: close\r\n"), std::string::npos);
  stopper.join();
  EXPECT_THROW(connect_to(server.endpoints()[0], Deadline::after(milliseconds(100))), Error);
}

class UnixSocket : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "gyre_http_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    options_.endpoints = {parse_endpoint("unix:" + path())};
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path() const { return directory_ / "s"; }

  std::filesystem::path directory_;
  ServerOptions options_;
};

TEST_F(UnixSocket, is_for_its_owner_alone_and_goes_with_the_server) {
  {
    const Server server(options_, echo_router());
    struct stat status{};
    ASSERT_EQ(::stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    RawClient client(server.endpoints()[0]);
    EXPECT_EQ(status_of(client.ask(get("/hello/x"))), "200");
    EXPECT_THROW(Server(options_, echo_router()), Error);  // One server at a time.
    EXPECT_EQ(status_of(client.ask(get("/hello/x"))), "200");
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(UnixSocket, of_a_dead_server_is_replaced_but_a_file_is_not) {
  {
    const Server first(options_, echo_router());
    std::filesystem::rename(path(), path() + ".dead");  // As after kill -9: nobody removes it.
  }
  std::filesystem::rename(path() + ".dead", path());
  {
    const Server second(options_, echo_router());
    EXPECT_EQ(status_of(RawClient(second.endpoints()[0]).ask(get("/hello/x"))), "200");
  }
  std::ofstream(path()) << "precious";
  EXPECT_THROW(Server(options_, echo_router()), Error);
  EXPECT_TRUE(std::filesystem::is_regular_file(path()));
}

TEST(Server, listens_on_this_host_only) {
  ServerOptions options = loopback_options();
  options.endpoints = {parse_endpoint("tcp:0.0.0.0:0")};
  try {
    const Server server(std::move(options), echo_router());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("in the clear"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyre::net::http
