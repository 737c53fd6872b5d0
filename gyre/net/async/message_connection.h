#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/net/async/async_io.h"
#include "gyre/net/message.h"

namespace gyre::net {

/// A connection that carries messages (gyre/net/message.h) both ways.
class MessageConnection : public std::enable_shared_from_this<MessageConnection> {
 public:
  explicit MessageConnection(std::shared_ptr<AsyncSocket> socket) : socket_(std::move(socket)) {}

  /// Error(kPeerLost) once it is closed, by either side; Error(kProtocol | kCorruptData).
  asio::awaitable<Message> receive();
  /// Hands over to the kernel what it takes now and the rest later; so a message sent is on its way even when this
  /// process ends next. A peer that reads nothing while kMostQueuedBytes pile up is cut off. Never throws for that:
  /// receive() does.
  void send(std::uint16_t type, std::span<const std::byte> payload);
  void close();
  const std::shared_ptr<AsyncSocket>& socket() const { return socket_; }

 private:
  static constexpr std::size_t kMostQueuedBytes = std::size_t{256} << 20;

  void flush();

  std::shared_ptr<AsyncSocket> socket_;
  MessageParser parser_;
  std::array<std::byte, 16'384> chunk_;
  Bytes outgoing_;
  bool waits_for_room_ = false;
};

}  // namespace gyre::net
