#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/net/async/async_io.h"
#include "gyre/net/async/strangers.h"
#include "gyre/net/handshake.h"
#include "gyre/net/network.h"
#include "gyre/net/psk_tls.h"

namespace gyre::net {

struct AcceptorOptions {
  std::string what;  ///< "the rendezvous": for the log.
  JobKey key;
  /// The key that a connector has to know, by what it says that it has; nothing: `key`. Asked before it has proved
  /// anything.
  std::function<std::optional<JobKey>(const Hello&)> key_of = {};
  std::uint32_t rank = 0;    ///< Who this is: connectors that want another rank are refused.
  std::size_t expected = 1;  ///< Members that may connect in the same moment; they do not displace each other.
  std::chrono::milliseconds handshake_timeout{10'000};
  /// Throws an Error to refuse what a connector asks for. Called before it has proved that it knows the key: what
  /// passes is signed.
  std::function<void(const Hello&)> check;
  /// Connections that leave this host go on encrypted, or are refused: that is not the connector's to decide.
  bool encrypt = true;
  /// Hears of a connector that knows the key and is refused because its job says otherwise about encryption.
  std::function<void(const Hello&, const std::string& peer)> disagreed = [](const Hello&, const std::string&) {};
  /// From where connections over TCP may come; empty: from everywhere. Those of this host itself always may.
  std::vector<Network> allowed;
  /// Gets every admitted connection, and its session where it is encrypted.
  std::function<void(const Hello&, std::shared_ptr<AsyncSocket>, std::shared_ptr<TlsSession>)> admitted;
  Logger logger;
};

/// Accepts connections on listening sockets and lets those through that know the job's key. Garbage, wrong keys and
/// silence are refused and logged. Once most_strangers() connections have not yet proved the key, or the process has
/// run out of descriptors, each new one displaces an older one (see Strangers): a flood cannot keep members out. Runs
/// on the thread of `context`.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  static constexpr int kMostLoggedRefusals = 100;

  Acceptor(asio::io_context& context, AcceptorOptions options);

  void listen(UniqueFd listening_socket);
  /// Stops listening; connections that are being admitted are dropped.
  void stop();

 private:
  using Listener = asio::posix::stream_descriptor;

  asio::awaitable<void> accept(std::shared_ptr<Listener> listener);
  void take_waiting(int listening_fd);
  UniqueFd take_one(int listening_fd);
  void make_room();
  bool may_come(int connection);
  asio::awaitable<void> admit(std::shared_ptr<AsyncSocket> socket, std::string peer, std::uint64_t number);
  /// The handshake up to the welcome; Error when the connector is refused.
  asio::awaitable<Hello> shake_hands(AsyncSocket& socket, Transcript& transcript, const std::string& peer);
  JobKey key_of(const Hello& hello) const;
  void log_refusal(const std::string& peer, const std::string& reason);

  asio::io_context& context_;
  AcceptorOptions options_;
  std::list<std::shared_ptr<Listener>> listeners_;
  Strangers<std::shared_ptr<AsyncSocket>> strangers_;
  std::set<std::string> addresses_refused_;  // That were logged.
  int refusals_ = 0;
};

}  // namespace gyre::net
