#include "gyre/group/internal/async_io.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "gyre/base/error.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

[[noreturn]] void throw_lost(const boost::system::error_code& failure) {
  throw Error(ErrorCode::kPeerLost, failure == asio::error::eof ? "the other side closed the connection"
                                                                : fmt::format("connection: {}", failure.message()));
}

}  // namespace

std::shared_ptr<AsyncSocket> adopt_socket(asio::io_context& context, UniqueFd connection) {
  int family = AF_UNSPEC;
  socklen_t length = sizeof(family);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) {
    throw system_error("SO_DOMAIN", errno);
  }
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
  if (failure) throw_lost(failure);
}

asio::awaitable<void> write_all(AsyncSocket& socket, std::span<const std::byte> from) {
  boost::system::error_code failure;
  co_await asio::async_write(socket, asio::buffer(from.data(), from.size()),
                             asio::redirect_error(asio::use_awaitable, failure));
  if (failure) throw_lost(failure);
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

asio::awaitable<net::Message> MessageConnection::receive() {
  for (;;) {
    std::optional<net::Message> message = parser_.next();
    if (message) co_return std::move(*message);
    boost::system::error_code failure;
    const std::size_t count = co_await socket_->async_read_some(asio::buffer(chunk_.data(), chunk_.size()),
                                                                asio::redirect_error(asio::use_awaitable, failure));
    if (failure) throw_lost(failure);
    parser_.append(std::span(chunk_).first(count));
  }
}

void MessageConnection::send(std::uint16_t type, std::span<const std::byte> payload) {
  if (!socket_->is_open()) return;
  const Bytes message = net::encode_message(type, payload);
  if (outgoing_.size() + message.size() > kMostQueuedBytes) return close();
  outgoing_.insert(outgoing_.end(), message.begin(), message.end());
  if (!waits_for_room_) flush();
}

void MessageConnection::flush() {
  std::size_t sent = 0;
  while (sent < outgoing_.size()) {
    const ssize_t count =
        ::send(socket_->native_handle(), outgoing_.data() + sent, outgoing_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    // The peer is gone. What it sent before may still wait to be read, so closing is left to receive().
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return outgoing_.clear();
    if (count < 0) break;
    sent += static_cast<std::size_t>(count);
  }
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (outgoing_.empty()) return;
  waits_for_room_ = true;
  socket_->async_wait(AsyncSocket::wait_write, [self = shared_from_this()](const boost::system::error_code& failure) {
    self->waits_for_room_ = false;
    if (!failure) self->flush();
  });
}

void MessageConnection::close() { close_quietly(*socket_); }

std::string describe_peer(int fd) {
  try {
    const net::Endpoint peer = net::peer_endpoint(fd);
    if (peer.kind == net::Endpoint::Kind::kTcp) return net::to_string(peer);
    const net::PeerCredentials credentials = net::peer_credentials(fd);
    return fmt::format("process {} of user {}", credentials.process, credentials.user);
  } catch (const Error&) {
    return "a peer that is gone already";  // Only for the log; the connection itself fails next, and says so.
  }
}

}  // namespace gyre::group
