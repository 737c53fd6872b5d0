#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/net/async/async_io.h"
#include "gyre/net/message.h"
#include "gyre/net/psk_tls.h"
#include "gyre/net/stream.h"

namespace gyre::net {

/// A message as it is sent, header and payload, which any number of connections can have in their queues at once.
using SharedMessage = std::shared_ptr<const Bytes>;
SharedMessage share_message(std::uint16_t type, std::span<const std::byte> payload);

/// A connection that carries messages (gyre/net/message.h) both ways.
class MessageConnection : public std::enable_shared_from_this<MessageConnection> {
 public:
  /// `tls`: the session of an encrypted connection, whose handshake is done.
  explicit MessageConnection(std::shared_ptr<AsyncSocket> socket, std::shared_ptr<TlsSession> tls = nullptr);

  /// Error(kPeerLost) once it is closed, by either side; Error(kProtocol | kCorruptData).
  asio::awaitable<Message> receive();
  /// Hands over to the kernel what it takes now and the rest later; so a message sent is on its way even when this
  /// process ends next. A peer that reads nothing while kMostQueuedBytes pile up is cut off. Never throws for that:
  /// receive() does.
  void send(std::uint16_t type, std::span<const std::byte> payload);
  /// The same without a copy, for what goes to many: while they read slowly there is one message, not one for each.
  void send(SharedMessage message);
  void close();
  /// What the kernel has not taken yet.
  std::size_t queued_bytes() const { return outgoing_bytes_; }
  const std::shared_ptr<AsyncSocket>& socket() const { return socket_; }

 private:
  static constexpr std::size_t kMostQueuedBytes = std::size_t{256} << 20;

  /// Hands to the parser what has arrived. False when nothing has.
  bool read_available();
  /// What the socket takes now; nothing when the peer is gone.
  std::optional<std::size_t> write_some(std::span<const std::byte> from);
  void flush();
  void discard_outgoing();

  std::shared_ptr<AsyncSocket> socket_;
  std::unique_ptr<Stream> stream_;  // Over it, while it is open.
  MessageParser parser_;
  std::list<SharedMessage> outgoing_;
  std::size_t outgoing_bytes_ = 0;
  std::size_t sent_of_first_ = 0;
  bool waits_for_room_ = false;
};

}  // namespace gyre::net
