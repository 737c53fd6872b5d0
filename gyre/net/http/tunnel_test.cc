// A connection may leave HTTP, and carry bytes both ways from there on.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gyre/base/thread_annotations.h"
#include "gyre/net/http/client.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/server.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

using std::chrono::milliseconds;

/// Gives back what it gets, until that has a '.'.
class EchoTunnel final : public Tunnel {
 public:
  Piece read(std::size_t /*most_bytes*/) override {
    const MutexLock lock(mutex_);
    Piece piece{.bytes = std::exchange(waiting_, {}), .wait = milliseconds(60'000)};
    piece.end = piece.bytes.ends_with('.');
    return piece;
  }
  void set_wake(std::function<void()> wake) override {
    const MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }
  void take(std::string_view bytes) override {
    if (bytes.find('!') != std::string_view::npos) throw Error(ErrorCode::kProtocol, "not here");
    std::function<void()> wake;
    {
      const MutexLock lock(mutex_);
      waiting_ += bytes;
      wake = wake_;
    }
    if (wake) wake();
  }

 private:
  Mutex mutex_;
  std::string waiting_ GYRE_GUARDED_BY(mutex_);
  std::function<void()> wake_ GYRE_GUARDED_BY(mutex_);
};

Router tunnel_router() {
  Router router;
  const Handler handler = [](Request&) {
    Response response{.status = 101, .headers = {{"Upgrade", "echo"}}};
    response.tunnel = std::make_shared<EchoTunnel>();
    return response;
  };
  router.add({.method = Method::kPost, .pattern = "/tunnel", .handler = handler});
  return router;
}

// Bytes may come together with the request, or at any time; the connection serves no request behind them.
TEST(Tunnel, a_tunnel_carries_bytes_both_ways_until_it_ends) {
  const Server server(loopback_options(), tunnel_router());
  RawClient client(server.endpoints()[0]);
  client.write("POST /tunnel HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst");
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n")) << head;
  EXPECT_NE(head.find("Upgrade: echo\r\n"), std::string::npos);
  EXPECT_EQ(client.read_until("first"), "first");
  client.write("second.");
  EXPECT_EQ(client.read_all(), "second.");
}

TEST(Tunnel, a_tunnel_that_refuses_what_comes_ends_its_connection_alone) {
  const Server server(loopback_options(), tunnel_router());
  const ClientOptions options{.endpoint = server.endpoints()[0]};
  const ClientRequest request{.method = Method::kPost, .target = {{"tunnel"}, {}}, .headers = {{"Upgrade", "echo"}}};
  Client client(options);
  const auto other = client.tunnel(request);
  const auto tunnel = client.tunnel(request);
  tunnel->write("no!");
  std::string bytes;
  EXPECT_FALSE(tunnel->read(bytes));
  other->write("yes");
  while (bytes.size() < 3 && other->read(bytes)) {
  }
  EXPECT_EQ(bytes, "yes");
  ClientRequest nowhere = request;
  nowhere.target = {{"nowhere"}, {}};
  EXPECT_THROW(client.tunnel(nowhere), HttpError);
}

}  // namespace
}  // namespace gyre::net::http
