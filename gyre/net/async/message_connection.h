#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/net/async/async_io.h"
#include "gyre/net/message.h"
#include "gyre/net/psk_tls.h"

namespace gyre::net {

/// A connection that carries messages (gyre/net/message.h) both ways.
class MessageConnection : public std::enable_shared_from_this<MessageConnection> {
 public:
  /// `tls`: the session of an encrypted connection, whose handshake is done.
  explicit MessageConnection(std::shared_ptr<AsyncSocket> socket, std::shared_ptr<TlsSession> tls = nullptr)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

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

  /// What has arrived; waits for it.
  asio::awaitable<std::span<const std::byte>> read_chunk();
  /// What the socket takes now of `outgoing_`; nothing when the peer is gone.
  std::optional<std::size_t> write_some(std::span<const std::byte> from);
  void flush();

  std::shared_ptr<AsyncSocket> socket_;
  std::shared_ptr<TlsSession> tls_;
  MessageParser parser_;
  std::array<std::byte, 16'384> chunk_;
  Bytes outgoing_;
  bool waits_for_room_ = false;
};

}  // namespace gyre::net
