#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "gyre/base/log.h"
#include "gyre/net/async/async_io.h"
#include "gyre/net/handshake.h"
#include "gyre/net/psk_tls.h"

namespace gyre::net {

struct AcceptorOptions {
  std::string what;  ///< "the rendezvous": for the log.
  JobKey key;
  std::chrono::milliseconds handshake_timeout{10'000};
  /// Throws an Error to refuse a connector that knows the key.
  std::function<void(const Hello&)> check;
  /// Whether a connection that was admitted goes on encrypted; none does where this is empty.
  std::function<bool(const Hello&)> encrypts;
  /// Gets every admitted connection, and its session where it is encrypted.
  std::function<void(const Hello&, std::shared_ptr<AsyncSocket>, std::unique_ptr<TlsSession>)> admitted;
  Logger logger;
};

/// Accepts connections on listening sockets and lets those through that know the job's key. Garbage, wrong keys and
/// silence are refused and logged. While strangers hold kMostStrangers connections, the oldest of them has to go for a
/// new one: they cannot keep members out. Runs on the service thread.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  static constexpr std::size_t kMostStrangers = 64;
  static constexpr int kMostLoggedRefusals = 100;

  Acceptor(asio::io_context& context, AcceptorOptions options);

  void listen(UniqueFd listening_socket);
  /// Stops listening; connections that are being admitted are dropped.
  void stop();

 private:
  using Listener = asio::posix::stream_descriptor;

  asio::awaitable<void> accept(std::shared_ptr<Listener> listener);
  void take_waiting(int listening_fd);
  asio::awaitable<void> admit(std::shared_ptr<AsyncSocket> socket, std::string peer);
  void log_refusal(const std::string& peer, const std::string& reason);

  asio::io_context& context_;
  AcceptorOptions options_;
  std::list<std::shared_ptr<Listener>> listeners_;
  std::list<std::shared_ptr<AsyncSocket>> strangers_;  // Oldest first.
  int refusals_ = 0;
};

}  // namespace gyre::net
