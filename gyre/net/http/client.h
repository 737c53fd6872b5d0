#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/http/event_stream.h"
#include "gyre/net/http/message.h"

namespace gyre::net::http {

struct ClientOptions {
  Endpoint endpoint;
  std::string token{};  ///< Sent as bearer token; empty: none.
  /// Of the server's certificate, as Certificate has it: the connection is TLS then, and nothing is sent to a server
  /// that has another one.
  std::string fingerprint{};
  /// On a unix socket the token goes to a server of root's, of our own, or of this account, and to no other.
  std::optional<uid_t> server_account{};
  std::chrono::milliseconds connect{5'000};     ///< For a connection to stand; until then it tries again.
  std::chrono::milliseconds silence{60'000};    ///< Without a byte of a response that is not a stream.
  std::chrono::milliseconds reconnect{60'000};  ///< How long follow() and events() try to get a lost stream back.
  std::uint64_t most_body_bytes = std::uint64_t{64} << 20;  ///< Of a body that is kept in memory.
  /// Called about ten times a second in every wait; may throw to end it (Ctrl-C).
  std::function<void()> meanwhile = [] {};
  /// Called once where a stream of follow() or events() was lost, and is not back within two seconds.
  std::function<void(const Error&)> lost = [](const Error&) {};
};

struct ClientRequest {
  Method method = Method::kGet;
  Target target;
  Headers headers{};
  std::string body{};
  const UniqueFd* body_file = nullptr;  ///< Sent instead of `body`, from its beginning to its end.
};

struct ClientResponse {
  int status = 0;
  Headers headers;
  std::string body;
};

/// A client's end of a connection that has left HTTP (Response::tunnel). Waits in the caller's thread. Not thread-safe.
class ClientTunnel {
 public:
  virtual ~ClientTunnel() = default;

  /// For poll(2).
  virtual int fd() const = 0;
  /// read() has something that fd() does not show.
  virtual bool has_more() const = 0;
  /// Appends what comes, and waits for it; false where the server has ended the connection. Error(kPeerLost).
  virtual bool read(std::string& buffer) = 0;
  /// All of the bytes. Error(kPeerLost | kTimeout).
  virtual void write(std::string_view bytes) = 0;
};

/// A client of one server, over TCP or a unix socket. Keeps one connection for its requests, opened when needed; waits
/// happen in the caller's thread. Not thread-safe. Every call may throw HttpError, the server's answer where its status
/// is 400 or above; Error(kTimeout) when a limit of the options passes; Error(kPeerLost) when the connection breaks (a
/// request that can safely be repeated is sent once more where a kept connection was stale); Error(kProtocol).
class Client {
 public:
  using Sink = std::function<void(std::string_view bytes)>;

  explicit Client(ClientOptions options);
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  /// kResourceExhausted when the body exceeds most_body_bytes.
  ClientResponse send(const ClientRequest& request);

  /// Hands the body on as it comes; it is not in the answer. The stream may be silent for as long as the connection
  /// stands.
  ClientResponse stream(const ClientRequest& request, const Sink& sink);

  /// On a connection of its own. `request` has the header Upgrade.
  std::unique_ptr<ClientTunnel> tunnel(const ClientRequest& request);

  /// Reads a file that is being written, from byte `offset` to its end: `file` with follow=true&offset=N. A lost
  /// connection is taken up where it broke off, so no byte is missing or comes twice, and a piece never ends within a
  /// UTF-8 character unless the file does. Returns the offset behind the last byte.
  std::uint64_t follow(const Target& file, std::uint64_t offset, const Sink& sink);

  /// Hands on server-sent events until the server ends the stream or `sink` returns false. A lost connection is taken
  /// up after the last event (Last-Event-ID). `last_id`: of the event to begin after; empty: from the first.
  void events(const Target& target, std::string last_id, const std::function<bool(const ServerEvent&)>& sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyre::net::http
