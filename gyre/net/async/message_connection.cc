#include "gyre/net/async/message_connection.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <optional>

namespace gyre::net {

asio::awaitable<Message> MessageConnection::receive() {
  for (;;) {
    std::optional<Message> message = parser_.next();
    if (message) co_return std::move(*message);
    boost::system::error_code failure;
    const std::size_t count = co_await socket_->async_read_some(asio::buffer(chunk_.data(), chunk_.size()),
                                                                asio::redirect_error(asio::use_awaitable, failure));
    if (failure) throw_connection_lost(failure);
    parser_.append(std::span(chunk_).first(count));
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

}  // namespace gyre::net
