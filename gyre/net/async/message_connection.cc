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

SharedMessage share_message(std::uint16_t type, std::span<const std::byte> payload) {
  return std::make_shared<const Bytes>(encode_message(type, payload));
}

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
  if (socket_->is_open()) send(share_message(type, payload));
}

void MessageConnection::send(SharedMessage message) {
  if (!socket_->is_open()) return;
  if (outgoing_bytes_ + message->size() > kMostQueuedBytes) return close();
  outgoing_bytes_ += message->size();
  outgoing_.push_back(std::move(message));
  if (!waits_for_room_) flush();
}

void MessageConnection::flush() {
  if (!socket_->is_open()) return;
  while (!outgoing_.empty()) {
    const Bytes& first = *outgoing_.front();
    const auto count = write_some(std::span(first).subspan(sent_of_first_));
    // The peer is gone. What it sent before may still wait to be read, so closing is left to receive().
    if (!count) return discard_outgoing();
    if (*count == 0) break;
    sent_of_first_ += *count;
    if (sent_of_first_ < first.size()) continue;
    outgoing_bytes_ -= first.size();
    sent_of_first_ = 0;
    outgoing_.pop_front();
  }
  if (outgoing_.empty()) return discard_outgoing();
  waits_for_room_ = true;
  socket_->async_wait(AsyncSocket::wait_write, [self = shared_from_this()](const boost::system::error_code& failure) {
    self->waits_for_room_ = false;
    if (!failure) self->flush();
  });
}

void MessageConnection::discard_outgoing() {
  outgoing_.clear();
  outgoing_bytes_ = 0;
  sent_of_first_ = 0;
}

void MessageConnection::close() { close_quietly(*socket_); }

}  // namespace gyre::net
