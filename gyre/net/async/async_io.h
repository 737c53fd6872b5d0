#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gyre/base/file.h"

// What coroutines on an event loop share. Only .cc files that run on such a loop include the headers of net/async: Asio
// is slow to compile. Nothing here is thread-safe; all of it runs on the loop's thread.
namespace gyre {
namespace asio = boost::asio;
}

namespace gyre::net {

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

/// Error(kPeerLost) that says how the connection ended.
[[noreturn]] void throw_connection_lost(const boost::system::error_code& failure);

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

/// Who is at the other end, for the log: "process 4711 of user 1000" or "tcp:10.0.0.7:4321".
std::string describe_peer(int fd);

}  // namespace gyre::net
