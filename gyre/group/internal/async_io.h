#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/net/message.h"

// What the coroutines of a rank's service thread share. Only the service's .cc files include this: Asio is slow to
// compile. Nothing here is thread-safe; all of it runs on the service thread.
namespace gyre::group {

namespace asio = boost::asio;
using AsyncSocket = asio::generic::stream_protocol::socket;

/// Takes over a connected socket.
std::shared_ptr<AsyncSocket> adopt_socket(asio::io_context& context, UniqueFd connection);
/// Gives it back, for use outside of Asio.
UniqueFd release_socket(AsyncSocket& socket);

/// Whatever close(2) says: there is nothing to be done about it. A socket, or what listens.
template <typename Closable>
void close_quietly(Closable& open) {
  boost::system::error_code ignored;
  static_cast<void>(open.close(ignored));
}

// All of the bytes, or Error(kPeerLost).
asio::awaitable<void> read_all(AsyncSocket& socket, std::span<std::byte> into);
asio::awaitable<void> write_all(AsyncSocket& socket, std::span<const std::byte> from);

/// Closes `socket` when this object still lives after `limit`: the operation that waits on it then fails.
class TimeLimit {
 public:
  TimeLimit(std::shared_ptr<AsyncSocket> socket, std::chrono::milliseconds limit);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  bool passed() const { return *state_ == State::kPassed; }

 private:
  enum class State : std::uint8_t { kRunning, kPassed, kOver };

  asio::steady_timer timer_;
  std::shared_ptr<State> state_;
};

/// A connection that carries messages (gyre/net/message.h) both ways.
class MessageConnection : public std::enable_shared_from_this<MessageConnection> {
 public:
  explicit MessageConnection(std::shared_ptr<AsyncSocket> socket) : socket_(std::move(socket)) {}

  /// Error(kPeerLost) once it is closed, by either side; Error(kProtocol | kCorruptData).
  asio::awaitable<net::Message> receive();
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
  net::MessageParser parser_;
  std::array<std::byte, 16'384> chunk_;
  Bytes outgoing_;
  bool waits_for_room_ = false;
};

/// Who is at the other end, for the log: "process 4711 of user 1000" or "tcp:10.0.0.7:4321".
std::string describe_peer(int fd);

}  // namespace gyre::group
