// A server that has never answered is most likely a typing error: it must not cost minutes, nor be taken for one that
// restarts.
#include "gyre/store/sources/http_session.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::store {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Answers each connection's first bytes with `reply`, until it goes.
class TinyServer {
 public:
  explicit TinyServer(std::string reply, std::uint16_t port = 0) : reply_(std::move(reply)) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TinyServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  TinyServer(const TinyServer&) = delete;
  TinyServer& operator=(const TinyServer&) = delete;

  std::string url(const std::string& scheme) const { return scheme + "://127.0.0.1:" + std::to_string(port_) + "/x"; }

 private:
  void serve() {
    for (;;) {
      const UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
      if (!peer) return;
      std::array<char, 4096> request{};
      static_cast<void>(::recv(peer.get(), request.data(), request.size(), 0));
      static_cast<void>(::send(peer.get(), reply_.data(), reply_.size(), MSG_NOSIGNAL));
    }
  }

  const std::string reply_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

/// How fetching `url` ends, with a patience of `patience`.
std::string failure_of(const std::string& url, milliseconds patience) {
  HttpSession session("the source", {});
  try {
    static_cast<void>(fetch_whole(
        session, [&] { return HttpRequest{.url = url}; }, "cannot read it",
        [](const WholeReply&) { return std::string(); }, 1'000, {}, patience));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HttpSession, a_server_that_has_never_answered_is_told_from_one_that_restarts) {
  constexpr milliseconds kShort{200};
  std::string url;
  {
    const TinyServer known("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    url = known.url("http");
    EXPECT_EQ(failure_of(url, kShort), "");
  }
  EXPECT_THAT(failure_of(url, kShort), HasSubstr("(for 0 s)")) << "it may restart";
  EXPECT_THAT(failure_of("http://127.0.0.1:1/x", kShort), HasSubstr("nothing has ever answered there"));
  EXPECT_THAT(failure_of("http://no-such-host.invalid/x", kShort), HasSubstr("nothing has ever answered there"));
}

TEST(HttpSession, a_server_without_tls_is_an_error_at_once) {
  const TinyServer plain("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(failure_of(plain.url("https"), std::chrono::minutes(5)), HasSubstr("does not speak TLS"));
}

}  // namespace
}  // namespace gyre::store
