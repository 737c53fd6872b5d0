// Strangers may send anything, slowly, endlessly or ten thousand times over: the others must not notice.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/clock.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/server.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Router small_router() {
  Router router;
  router.add({.method = Method::kGet, .pattern = "/", .handler = [](Request&) { return Response{.body = "here"}; }});
  router.add({.method = Method::kPut,
              .pattern = "/small",
              .handler = [](Request& request) { return Response{.body = std::to_string(request.body.size())}; },
              .body_bytes = 1'000});
  router.add({.method = Method::kGet, .pattern = "/large", .handler = [](Request&) {
                return Response{.body = std::string(std::size_t{64} << 20, 'x')};
              }});
  return router;
}

void expect_alive(const Server& server) { EXPECT_EQ(body_of(RawClient(server.endpoints()[0]).ask(get("/"))), "here"); }

/// This process's, which holds both ends of each connection.
std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

bool becomes_true(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(seconds(60));
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

TEST(ServerUnderAbuse, garbage_gets_one_answer_and_the_connection_ends) {
  const Server server(loopback_options(), small_router());
  for (const std::string text : {"\x16\x03\x01\x02\x00", "GET /\r\n\r\n", "hello\r\n", "GET / HTTP/1.1\nHost: h\n\n",
                                 "GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nA\r\n\r\n"}) {
    RawClient client(server.endpoints()[0]);
    client.write(text + get("/"));
    const std::string answer = client.read_all();
    EXPECT_EQ(status_of(answer), "400") << text;
    EXPECT_NE(answer.find("{\"error\":{\"code\":"), std::string::npos);
    EXPECT_EQ(answer.find("here"), std::string::npos) << "a second answer to " << text;
  }
  expect_alive(server);
}

TEST(ServerUnderAbuse, a_request_hidden_in_another_is_never_answered) {
  const Server server(loopback_options(), small_router());
  for (const std::string framing :
       {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: xchunked\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 40\r\n\r\n", "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"}) {
    RawClient client(server.endpoints()[0]);
    client.write("PUT /small HTTP/1.1\r\nHost: h\r\n" + framing + get("/"));
    const std::string answer = client.read_all();
    EXPECT_TRUE(status_of(answer) == "400" || status_of(answer) == "501") << answer;
    EXPECT_EQ(answer.find("here"), std::string::npos) << framing;
  }
}

TEST(ServerUnderAbuse, a_flood_of_headers_is_cut_off) {
  const Server server(loopback_options(), small_router());
  RawClient client(server.endpoints()[0]);
  client.write("GET / HTTP/1.1\r\nHost: h\r\n");
  const std::string header = "X: " + std::string(1'000, 'x') + "\r\n";
  for (int i = 0; i < 100'000 && client.write(header); ++i) {
    if (client.closed_within(milliseconds(0))) break;
    pollfd entry{client.fd(), POLLIN, 0};
    if (::poll(&entry, 1, 0) > 0) break;
  }
  EXPECT_EQ(status_of(client.read_until("\r\n\r\n")), "431");
  expect_alive(server);
}

TEST(ServerUnderAbuse, a_body_of_100_MB_is_refused_before_it_is_read) {
  const Server server(loopback_options(), small_router());
  RawClient announced(server.endpoints()[0]);
  EXPECT_EQ(status_of(announced.ask("PUT /small HTTP/1.1\r\nHost: h\r\nContent-Length: 104857600\r\n\r\n")), "413");
  // One that is sent all the same, by a client that reads nothing before it has sent everything.
  RawClient sent(server.endpoints()[0]);
  sent.write("PUT /small HTTP/1.1\r\nHost: h\r\nContent-Length: 104857600\r\n\r\n");
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 100 && sent.write(megabyte); ++i) {
  }
  RawClient chunked(server.endpoints()[0]);
  chunked.write("PUT /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "3e8\r\n" + std::string(1'000, 'x') + "\r\n";
  chunked.write(chunk + chunk);
  EXPECT_EQ(status_of(chunked.read_response()), "413");
  expect_alive(server);
}

TEST(ServerUnderAbuse, slow_requests_have_little_time_and_disturb_nobody) {
  ServerOptions options = loopback_options();
  options.limits.head = milliseconds(300);
  options.limits.read = milliseconds(300);
  const Server server(std::move(options), small_router());
  std::vector<RawClient> slow;
  for (int i = 0; i < 100; ++i) slow.emplace_back(server.endpoints()[0]).write("GET / HTTP/1.1\r\nHo");
  RawClient body(server.endpoints()[0]);
  body.write("PUT /small HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123");
  expect_alive(server);
  for (RawClient& client : slow) EXPECT_EQ(status_of(client.read_all()), "408");
  EXPECT_EQ(status_of(body.read_all()), "408");
}

TEST(ServerUnderAbuse, a_head_that_comes_byte_by_byte_has_one_limit_for_all_of_it) {
  ServerOptions options = loopback_options();
  options.limits.head = milliseconds(300);
  const Server server(std::move(options), small_router());
  RawClient client(server.endpoints()[0]);
  const auto began = SteadyClock::now();
  client.write("GET / HTTP/1.1\r\nX: ");
  while (!client.closed_within(milliseconds(20)) && SteadyClock::now() - began < seconds(20)) {
    pollfd entry{client.fd(), POLLIN, 0};
    if (::poll(&entry, 1, 0) > 0) break;
    client.write("x");
  }
  EXPECT_EQ(status_of(client.read_all()), "408");
  EXPECT_LT(SteadyClock::now() - began, seconds(20));
}

TEST(ServerUnderAbuse, a_body_slower_than_its_least_rate_ends) {
  ServerOptions options = loopback_options();
  options.limits.read = milliseconds(400);
  options.limits.body_bytes_per_second = 1'000'000;
  const Server server(std::move(options), small_router());
  RawClient client(server.endpoints()[0]);
  client.write("PUT /small HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n");
  pollfd entry{client.fd(), POLLIN, 0};
  // Never silent for as long as `read`, and yet too slow.
  for (int i = 0; i < 800 && ::poll(&entry, 1, 50) == 0; ++i) client.write("x");
  EXPECT_EQ(status_of(client.read_all()), "408");
}

TEST(ServerUnderAbuse, a_client_that_does_not_read_is_cut_off) {
  ServerOptions options = loopback_options();
  options.limits.write = milliseconds(300);
  const Server server(std::move(options), small_router());
  const std::ptrdiff_t before = open_descriptors();
  RawClient client(server.endpoints()[0]);
  client.write(get("/large"));
  // The client's end and the server's, and then no more the server's.
  ASSERT_TRUE(becomes_true([&] { return open_descriptors() == before + 2; })) << "nobody accepted the connection";
  ASSERT_TRUE(becomes_true([&] { return open_descriptors() == before + 1; })) << "the server did not cut it off";
  EXPECT_LT(client.read_all().size(), std::size_t{64} << 20);
  expect_alive(server);
}

TEST(ServerUnderAbuse, an_idle_connection_ends_after_its_time) {
  ServerOptions options = loopback_options();
  options.limits.idle = milliseconds(200);
  const Server server(std::move(options), small_router());
  RawClient client(server.endpoints()[0]);
  EXPECT_EQ(status_of(client.ask(get("/"))), "200");
  EXPECT_TRUE(client.closed_within(seconds(20)));
}

TEST(ServerUnderAbuse, requests_and_wrong_tokens_have_a_rate) {
  ServerOptions options = loopback_options();
  options.limits.requests = {.per_second = 0.001, .burst = 3};
  options.limits.failed_logins = {.per_second = 0.001, .burst = 2};
  options.authenticate = [](const Credentials& credentials) {
    return credentials.token.starts_with("user") ? std::optional(Identity{std::string(credentials.token)})
                                                 : std::nullopt;
  };
  const Server server(std::move(options), small_router());
  RawClient client(server.endpoints()[0]);
  for (const char* expected : {"401", "401", "429", "429"}) {
    EXPECT_EQ(status_of(client.ask(get("/", "Authorization: Bearer guess\r\n"))), expected);
  }
  for (const char* expected : {"200", "200", "200", "429"}) {
    EXPECT_EQ(status_of(client.ask(get("/", "Authorization: Bearer user1\r\n"))), expected);
  }
  EXPECT_NE(client.ask(get("/", "Authorization: Bearer user1\r\n")).find("Retry-After: 1000\r\n"), std::string::npos);
  EXPECT_EQ(status_of(client.ask(get("/", "Authorization: Bearer user2\r\n"))), "200");
}

TEST(ServerUnderAbuse, beyond_the_limit_the_longest_idle_connection_goes) {
  ServerOptions options = loopback_options();
  options.limits.connections = 10;
  const Server server(std::move(options), small_router());
  std::vector<RawClient> clients;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(status_of(clients.emplace_back(server.endpoints()[0]).ask(get("/"))), "200");
  }
  expect_alive(server);
  EXPECT_TRUE(clients[0].closed_within(seconds(20)));
  EXPECT_EQ(status_of(clients[9].ask(get("/"))), "200");
}

TEST(ServerUnderAbuse, requests_beyond_what_may_wait_are_told_so) {
  std::promise<void> go_on;
  const std::shared_future<void> released(go_on.get_future());
  std::atomic<int> running = 0;
  ServerOptions options = loopback_options();
  options.limits.handler_threads = 2;
  options.limits.waiting_handlers = 1;
  Router router = small_router();
  router.add({.method = Method::kGet, .pattern = "/wait", .handler = [&, released](Request&) {
                ++running;
                released.wait();
                return Response{.body = "waited"};
              }});
  const Server server(std::move(options), std::move(router));
  std::vector<RawClient> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.emplace_back(server.endpoints()[0]).write(get("/wait"));
    while (running.load() <= i) std::this_thread::yield();
  }
  waiting.emplace_back(server.endpoints()[0]).write(get("/wait"));
  // The third one waits for a thread; when it does, there is no room for a fourth.
  RawClient refused(server.endpoints()[0]);
  std::string status;
  std::vector<RawClient> tries;
  for (int i = 0; i < 100 && status != "503"; ++i) {
    RawClient& client = tries.emplace_back(server.endpoints()[0]);
    client.write(get("/"));
    pollfd entry{client.fd(), POLLIN, 0};
    if (::poll(&entry, 1, 100) > 0) status = status_of(client.read_response());
  }
  EXPECT_EQ(status, "503");
  go_on.set_value();
  for (RawClient& client : waiting) EXPECT_EQ(body_of(client.read_response()), "waited");
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A process that opens connections to the port that it is told and holds them: the limit of open files counts for each
/// process. Started before there are threads.
class IdleClients {
 public:
  explicit IdleClients(std::size_t connections) {
    GYRE_CHECK(::pipe2(orders_, O_CLOEXEC) == 0);
    GYRE_CHECK(::pipe2(reports_, O_CLOEXEC) == 0);
    child_ = ::fork();
    GYRE_CHECK(child_ >= 0);
    if (child_ == 0) hold(connections);
    ::close(orders_[0]);
    ::close(reports_[1]);
  }
  ~IdleClients() {
    ::close(orders_[1]);
    ::close(reports_[0]);
    ::waitpid(child_, nullptr, 0);
  }
  IdleClients(const IdleClients&) = delete;
  IdleClients& operator=(const IdleClients&) = delete;

  /// How many stand.
  std::size_t connect(std::uint16_t port) {
    std::size_t count = 0;
    GYRE_CHECK(::write(orders_[1], &port, sizeof(port)) == ssize_t{sizeof(port)});
    GYRE_CHECK(::read(reports_[0], &count, sizeof(count)) == ssize_t{sizeof(count)});
    return count;
  }

 private:
  [[noreturn]] void hold(std::size_t connections) {
    ::close(orders_[1]);
    std::uint16_t port = 0;
    if (::read(orders_[0], &port, sizeof(port)) != ssize_t{sizeof(port)}) ::_exit(1);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::size_t count = 0;
    while (count < connections) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) break;
      ++count;
    }
    if (::write(reports_[1], &count, sizeof(count)) < 0) ::_exit(1);
    ::_exit(::read(orders_[0], &port, sizeof(port)) == 0 ? 0 : 1);  // Once the test has ended.
  }

  int orders_[2] = {};
  int reports_[2] = {};
  pid_t child_ = 0;
};

TEST(ServerUnderAbuse, survives_ten_thousand_idle_connections) {
  constexpr std::size_t kConnections = 10'000;
  rlimit before{};
  GYRE_CHECK(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  ASSERT_GE(before.rlim_max, kConnections + 200) << "the hard limit of open files is too low for this test";
  const rlimit needed{before.rlim_max, before.rlim_max};
  GYRE_CHECK(::setrlimit(RLIMIT_NOFILE, &needed) == 0);
  {
    IdleClients idle(kConnections);
    const Server server(loopback_options(), small_router());
    const std::size_t memory_before = resident_bytes();
    ASSERT_EQ(idle.connect(server.endpoints()[0].port), kConnections);
    RawClient client(server.endpoints()[0]);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(status_of(client.ask(get("/"))), "200");
    // Sanitizers need memory of their own.
#if !defined(__clang__)
    EXPECT_LT(resident_bytes() - memory_before, std::size_t{60} << 20);
#else
    static_cast<void>(memory_before);
#endif
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(ServerUnderAbuse, without_descriptors_idle_connections_make_room) {
  rlimit before{};
  GYRE_CHECK(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const Server server(loopback_options(), small_router());
  rlimit few{64, before.rlim_max};
  GYRE_CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<UniqueFd> fillers;
  for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::dup(fd)) fillers.emplace_back(fd);
  // Both ends of a connection are this process's. Two of them and one more client's end use all that there is.
  fillers.resize(fillers.size() - 5);
  std::vector<RawClient> idle;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(status_of(idle.emplace_back(server.endpoints()[0]).ask(get("/"))), "200");
  const std::string answer = RawClient(server.endpoints()[0]).ask(get("/"));
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(status_of(answer), "200");
  EXPECT_TRUE(idle[0].closed_within(seconds(20)));
  EXPECT_FALSE(idle[1].closed_within(milliseconds(0)));
}

/// A source that gives one byte and then nothing, for ever.
class SilentSource : public BodySource {
 public:
  Piece read(std::size_t) override {
    return std::exchange(said_, true) ? Piece{.wait = milliseconds(50)} : Piece{.bytes = "x"};
  }

 private:
  bool said_ = false;
};

ServerOptions options_with_users() {
  ServerOptions options = loopback_options();
  options.authenticate = [](const Credentials& credentials) {
    return credentials.token.starts_with("user") ? std::optional(Identity{std::string(credentials.token)})
                                                 : std::nullopt;
  };
  return options;
}

TEST(ServerUnderAbuse, one_user_follows_so_many_streams_and_others_follow_theirs) {
  ServerOptions options = options_with_users();
  options.limits.streams_per_user = 3;
  Router router = small_router();
  router.add({.method = Method::kGet, .pattern = "/stream", .handler = [](Request&) {
                Response response;
                response.source = std::make_shared<SilentSource>();
                return response;
              }});
  const Server server(std::move(options), std::move(router));
  const auto follow = [&](const char* user) {
    auto client = std::make_unique<RawClient>(server.endpoints()[0]);
    client->write(get("/stream", fmt::format("Authorization: Bearer {}\r\n", user)));
    return std::pair(client->read_until("\r\n\r\n"), std::move(client));
  };
  std::vector<std::unique_ptr<RawClient>> followers;
  for (int i = 0; i < 3; ++i) {
    auto [head, client] = follow("user1");
    EXPECT_EQ(status_of(head), "200");
    followers.push_back(std::move(client));
  }
  RawClient fourth(server.endpoints()[0]);
  const std::string refused = fourth.ask(get("/stream", "Authorization: Bearer user1\r\n"));
  EXPECT_EQ(status_of(refused), "429");
  EXPECT_NE(refused.find("user 'user1' follows 3 logs"), std::string::npos) << refused;
  EXPECT_EQ(status_of(fourth.ask(get("/", "Authorization: Bearer user1\r\n"))), "200");
  EXPECT_EQ(status_of(follow("user2").first), "200");
  followers.pop_back();
  // The server notices an end when it has nothing to say.
  std::string again;
  for (int tries = 0; tries < 100 && again != "200"; ++tries) {
    std::this_thread::sleep_for(milliseconds(20));
    again = status_of(follow("user1").first);
  }
  EXPECT_EQ(again, "200");
}

TEST(ServerUnderAbuse, one_user_sends_so_many_bodies_at_once) {
  ServerOptions options = options_with_users();
  options.limits.bodies_per_user = 2;
  Router router;
  router.add(
      {.method = Method::kPut, .pattern = "/put", .handler = [](Request&) { return Response{}; }, .body_bytes = 100});
  const Server server(std::move(options), std::move(router));
  const auto head = [](const char* user) {
    return fmt::format("PUT /put HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nContent-Length: 2\r\n\r\n", user);
  };
  std::list<RawClient> slow;
  for (int i = 0; i < 2; ++i) slow.emplace_back(server.endpoints()[0]).write(head("user1") + "x");
  std::string refused;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (status_of(refused) != "429" && !deadline.passed()) {  // Until both have been read so far.
    RawClient third(server.endpoints()[0]);
    refused = third.ask(head("user1") + "xx");
  }
  EXPECT_NE(refused.find("user 'user1' sends 2 requests with a body at once already"), std::string::npos) << refused;
  RawClient other(server.endpoints()[0]);
  EXPECT_EQ(status_of(other.ask(head("user2") + "xx")), "200");
  slow.clear();
}

TEST(ServerUnderAbuse, connections_that_prove_nothing_make_room_for_each_other_alone) {
  ServerOptions options = options_with_users();
  options.limits.strangers_per_peer = 4;
  const Server server(std::move(options), small_router());
  RawClient known(server.endpoints()[0]);
  EXPECT_EQ(status_of(known.ask(get("/", "Authorization: Bearer user1\r\n"))), "200");
  std::list<RawClient> strangers;
  for (int i = 0; i < 20; ++i) strangers.emplace_back(server.endpoints()[0]);
  RawClient late(server.endpoints()[0]);
  EXPECT_EQ(status_of(late.ask(get("/", "Authorization: Bearer user2\r\n"))), "200");
  EXPECT_EQ(status_of(known.ask(get("/", "Authorization: Bearer user1\r\n"))), "200");
  EXPECT_EQ(strangers.front().read_until("\r\n\r\n"), "");  // Closed.
}

}  // namespace
}  // namespace gyre::net::http
