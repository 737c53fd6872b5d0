#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"
#include "gyre/net/message.h"
#include "gyre/net/stream.h"

namespace gyre::jobs::orders {

/// What a connection is for: Hello::purpose. Far from the numbers that ranks use.
enum class Purpose : std::uint32_t { kService = 0x4A01, kShell = 0x4A02 };

/// 64 hexadecimal digits. Error(kInvalidArgument).
net::JobKey key_from_hex(std::string_view digits);

/// Tells keys apart, and tells nothing about them.
std::uint64_t key_number(const net::JobKey& key);

/// The accepting end of a connection, as both sides must mean it.
struct Door {
  Purpose purpose;
  std::uint32_t node = 0;  ///< Which of the attempt's nodes; the service is 0.
  std::uint64_t key = 0;   ///< key_number() of the connector's, to an acceptor that has several.
};

// Both sides have proved that they know the key and mean the same door before these return, and what leaves this host
// is encrypted (psk_tls). Error(kAuthentication | kTimeout | kPeerLost | kProtocol | kMismatch).
std::unique_ptr<net::Stream> connect_securely(const net::Endpoint& endpoint, const net::JobKey& key, Door door,
                                              Deadline deadline);
std::unique_ptr<net::Stream> accept_securely(UniqueFd connection, const net::JobKey& key, Door door, Deadline deadline);

/// Messages both ways over a stream, for a thread that polls: nothing here waits. Not thread-safe.
class MessagePipe {
 public:
  explicit MessagePipe(std::unique_ptr<net::Stream> stream) : stream_(std::move(stream)) {}

  int fd() const { return stream_->fd(); }
  /// What to poll fd() for.
  short events() const;

  /// Sends what it can at once; flush() the rest. Error(kResourceExhausted) when the other side does not read.
  void send(std::uint16_t type, std::span<const std::byte> payload);
  void flush();
  std::size_t waiting_bytes() const { return outgoing_.size(); }

  /// The next message that has arrived. Error(kPeerLost) at the end; Error(kProtocol | kCorruptData).
  std::optional<net::Message> receive();

 private:
  static constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 20;

  std::unique_ptr<net::Stream> stream_;
  net::MessageParser parser_;
  Bytes outgoing_;
};

}  // namespace gyre::jobs::orders
