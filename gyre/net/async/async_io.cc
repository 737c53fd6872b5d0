#include "gyre/net/async/async_io.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/net/socket.h"

namespace gyre::net {

void throw_connection_lost(const boost::system::error_code& failure) {
  throw Error(ErrorCode::kPeerLost, failure == asio::error::eof ? "the other side closed the connection"
                                                                : fmt::format("connection: {}", failure.message()));
}

std::shared_ptr<AsyncSocket> adopt_socket(asio::io_context& context, UniqueFd connection) {
  int family = AF_UNSPEC;
  socklen_t length = sizeof(family);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) {
    throw system_error("SO_DOMAIN", errno);
  }
  close_in_forks(connection.get());
  auto socket = std::make_shared<AsyncSocket>(context);
  boost::system::error_code failure;
  static_cast<void>(socket->assign(asio::generic::stream_protocol(family, 0), connection.get(), failure));
  if (failure) throw system_error("watching a connection", failure.value());
  connection.release();
  return socket;
}

UniqueFd release_socket(AsyncSocket& socket) {
  boost::system::error_code failure;
  UniqueFd released(socket.release(failure));
  if (failure) throw system_error("handing on a connection", failure.value());
  return released;
}

asio::awaitable<void> read_all(AsyncSocket& socket, std::span<std::byte> into) {
  boost::system::error_code failure;
  co_await asio::async_read(socket, asio::buffer(into.data(), into.size()),
                            asio::redirect_error(asio::use_awaitable, failure));
  if (failure) throw_connection_lost(failure);
}

asio::awaitable<void> write_all(AsyncSocket& socket, std::span<const std::byte> from) {
  boost::system::error_code failure;
  co_await asio::async_write(socket, asio::buffer(from.data(), from.size()),
                             asio::redirect_error(asio::use_awaitable, failure));
  if (failure) throw_connection_lost(failure);
}

TimeLimit::TimeLimit(std::shared_ptr<AsyncSocket> socket, std::chrono::milliseconds limit)
    : timer_(socket->get_executor(), limit), state_(std::make_shared<State>(State::kRunning)) {
  timer_.async_wait([socket = std::move(socket), state = state_](const boost::system::error_code& cancelled) {
    // The handler may already be on its way when this object goes; hence the shared state.
    if (cancelled || *state == State::kOver) return;
    *state = State::kPassed;
    close_quietly(*socket);
  });
}

TimeLimit::~TimeLimit() {
  if (*state_ == State::kRunning) *state_ = State::kOver;
  timer_.cancel();
}

std::string describe_peer(int fd) {
  try {
    const Endpoint peer = peer_endpoint(fd);
    if (peer.kind == Endpoint::Kind::kTcp) return to_string(peer);
    const PeerCredentials credentials = peer_credentials(fd);
    return fmt::format("process {} of user {}", credentials.process, credentials.user);
  } catch (const Error&) {
    return "a peer that is gone already";  // Only for the log; the connection itself fails next, and says so.
  }
}

}  // namespace gyre::net
