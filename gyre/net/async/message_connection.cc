#include "gyre/net/async/message_connection.h"

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gyre/base/error.h"

namespace gyre::net {
namespace {

constexpr const char* kOtherSide = "the other side";
constexpr std::size_t kReadBytes = 16'384;

}  // namespace

MessageConnection::MessageConnection(std::shared_ptr<AsyncSocket> socket, std::shared_ptr<TlsSession> tls)
    : socket_(std::move(socket)) {
  const int fd = socket_->native_handle();
  stream_ = tls ? make_tls_stream_over(fd, std::move(tls), kOtherSide) : make_socket_stream_over(fd, kOtherSide);
}

asio::awaitable<Message> MessageConnection::receive() {
  for (;;) {
    std::optional<Message> message = parser_.next();
    if (message) co_return std::move(*message);
    // Before any wait: bytes may have come with the last ones that the handshake needed.
    if (read_available()) continue;
    boost::system::error_code failure;
    co_await socket_->async_wait(AsyncSocket::wait_read, asio::redirect_error(asio::use_awaitable, failure));
    if (failure) throw_connection_lost(failure);
  }
}

bool MessageConnection::read_available() {
  if (!socket_->is_open()) throw Error(ErrorCode::kPeerLost, "the connection was closed on this side");
  std::array<std::byte, kReadBytes> chunk;
  const std::size_t count = stream_->read_some(chunk);
  parser_.append(std::span(chunk).first(count));
  return count > 0;
}

std::optional<std::size_t> MessageConnection::write_some(std::span<const std::byte> from) {
  try {
    return stream_->write_some(from);
  } catch (const Error&) {
    return std::nullopt;
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
    if (!count) return discard_outgoing();
    if (*count == 0) break;
    sent += *count;
  }
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (outgoing_.empty()) return discard_outgoing();
  waits_for_room_ = true;
  socket_->async_wait(AsyncSocket::wait_write, [self = shared_from_this()](const boost::system::error_code& failure) {
    self->waits_for_room_ = false;
    if (!failure) self->flush();
  });
}

/// Its room, too: a membership goes to a thousand ranks, once.
void MessageConnection::discard_outgoing() { outgoing_ = Bytes(); }

void MessageConnection::close() { close_quietly(*socket_); }

}  // namespace gyre::net
