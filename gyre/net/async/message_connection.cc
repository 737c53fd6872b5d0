#include "gyre/net/async/message_connection.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <string>

#include "gyre/base/error.h"

namespace gyre::net {
namespace {

const std::string kOtherSide = "the other side";

}  // namespace

asio::awaitable<Message> MessageConnection::receive() {
  for (;;) {
    std::optional<Message> message = parser_.next();
    if (message) co_return std::move(*message);
    parser_.append(co_await read_chunk());
  }
}

asio::awaitable<std::span<const std::byte>> MessageConnection::read_chunk() {
  boost::system::error_code failure;
  if (!tls_) {
    const std::size_t count = co_await socket_->async_read_some(asio::buffer(chunk_.data(), chunk_.size()),
                                                                asio::redirect_error(asio::use_awaitable, failure));
    if (failure) throw_connection_lost(failure);
    co_return std::span(chunk_).first(count);
  }
  for (;;) {
    // First of all: bytes may have come with the last ones that the handshake needed.
    if (!socket_->is_open()) throw Error(ErrorCode::kPeerLost, "the connection was closed on this side");
    const std::size_t count = tls_->read_some(socket_->native_handle(), chunk_, kOtherSide);
    if (count > 0) co_return std::span(chunk_).first(count);
    co_await socket_->async_wait(AsyncSocket::wait_read, asio::redirect_error(asio::use_awaitable, failure));
    if (failure) throw_connection_lost(failure);
  }
}

std::optional<std::size_t> MessageConnection::write_some(std::span<const std::byte> from) {
  const int fd = socket_->native_handle();
  if (tls_) {
    try {
      return tls_->write_some(fd, from, kOtherSide);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  for (;;) {
    const ssize_t count = ::send(fd, from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? std::optional<std::size_t>(0) : std::nullopt;
  }
}

void MessageConnection::send(std::uint16_t type, std::span<const std::byte> payload) {
  if (!socket_->is_open()) return;
  const Bytes message = encode_message(type, payload);
  if (outgoing_.size() + message.size() > kMostQueuedBytes) return close();
  outgoing_.insert(outgoing_.end(), message.begin(), message.end());
  if (!waits_for_room_) flush();
}

void MessageConnection::flush() {
  if (!socket_->is_open()) return;
  std::size_t sent = 0;
  while (sent < outgoing_.size()) {
    const auto count = write_some(std::span(outgoing_).subspan(sent));
    // The peer is gone. What it sent before may still wait to be read, so closing is left to receive().
    if (!count) return outgoing_.clear();
    if (*count == 0) break;
    sent += *count;
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

}  // namespace gyre::net
