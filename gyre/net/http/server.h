#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/http/certificate.h"
#include "gyre/net/http/rate_limit.h"
#include "gyre/net/http/router.h"

namespace gyre::net::http {

/// What a request comes with to prove its sender.
struct Credentials {
  std::string_view token{};  ///< Bearer token; empty: none.
  /// Of the process at the other end of a unix socket, as the kernel says. Nothing where that cannot be believed: the
  /// process is in another container.
  std::optional<uid_t> account{};
};

/// Whose credentials these are; nothing for a token that nobody has. HttpError(401) refuses with words of its own. Runs
/// on the pool's threads, several at once. A token counts more than an account.
using Authenticator = std::function<std::optional<Identity>(const Credentials& credentials)>;

/// What one client, or all of them together, can make the server spend.
struct ServerLimits {
  /// Of more, the connection that has been idle longest is closed; when none is idle the new one is.
  std::size_t connections = 16'384;
  std::size_t header_bytes = 16'384;
  Rate requests{1'000, 2'000};  ///< Per user; on open routes per peer (its address, or its user id on a unix socket).
  Rate failed_logins{10, 50};   ///< Per peer: requests with a wrong token or none.
  /// Of a user; of more, the request is answered 429.
  std::size_t streams_per_user = 512;  ///< Answers without a length: followed logs, events.
  std::size_t bodies_per_user = 32;    ///< That arrive at the same time.
  /// Connections of one peer that have not proved yet who sends; of more, the oldest is closed.
  std::size_t strangers_per_peer = 1'024;
  std::chrono::milliseconds idle{75'000};  ///< Between two requests on a connection.
  std::chrono::milliseconds head{
      10'000};  ///< From a request's first byte, or a stranger's coming, to the end of its head.
  std::chrono::milliseconds read{10'000};       ///< Without a byte of a body.
  std::uint64_t body_bytes_per_second = 1'024;  ///< The slowest body on average, after the first `read`.
  std::chrono::milliseconds write{30'000};      ///< For 64 KB of a response to be accepted by the client's host.
  std::size_t handler_threads = 8;
  std::size_t waiting_handlers = 1'024;  ///< Of more, a request is answered 503.
};

/// A request that changed something or was refused, for a log of who did what. Holds no header, query or body: a secret
/// may be in them. What a handler shows of them, it has made sure of.
struct AuditEntry {
  std::string user{};  ///< Empty: nobody has proved who they are.
  std::string peer{};  ///< As Request::peer.
  Method method = Method::kGet;
  std::string path{};  ///< Decoded.
  int status = 0;
  std::string error{};                 ///< HttpError::name(); empty where there was none.
  std::vector<std::string> command{};  ///< As Request::command.
  std::uint64_t omitted = 0;           ///< Refusals since the last entry that there were too many of.
};

struct ServerOptions {
  std::string what = "the server";  ///< For the log.
  /// A dead server's unix socket is replaced; on one without a file ("unix:@NAME") only this process's user and root
  /// are let in. TCP is for loopback addresses, unless there is a certificate.
  std::vector<Endpoint> endpoints{};
  std::optional<Certificate> certificate{};  ///< TCP is TLS 1.3 then.
  mode_t socket_mode = 0600;                 ///< Of unix sockets in the file system: who may connect.
  /// Empty: every route is open.
  Authenticator authenticate{};
  /// Called before the answer, with every change that was made (answers below 400 to all but GET), and with refusals
  /// (401, 403, 409, 429 and errors of changes), of which a flood is counted instead. Runs on the pool's threads,
  /// several at once, or on the server's own; must not throw.
  std::function<void(const AuditEntry&)> audit{};
  ServerLimits limits{};
  /// Where bodies that go to files are kept; the files have no names.
  std::filesystem::path spool_directory = std::filesystem::temp_directory_path();
  /// What bodies leave free of that file system; of less, a request is answered 507 "DiskReserve".
  std::uint64_t spool_keeps_free = 0;
  Logger logger = null_logger();
};

/// HTTP/1.1 for trusted hosts: keep-alive, pipelining, ranges, streams. A request is answered in this order: 400, 414,
/// 431, 501, 505 for what is not a well-formed request; 401 or 429 for one without a valid token, whatever it asks for;
/// 429, 404, 405, 413; then the handler's answer. Every error has the body that HttpError describes. Thread-safe.
class Server {
 public:
  /// Listens at once. Error(kIo …) names the endpoint; Error(kInvalidArgument) for one that is not on this host.
  Server(ServerOptions options, Router router);
  /// stop(0).
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Where it listens, in the order of the options, with the ports that the system chose.
  const std::vector<Endpoint>& endpoints() const;

  /// Accepts nothing more, closes idle connections, ends streams without a length, lets other requests finish for up to
  /// `grace`, then closes what is left. Waits for handlers that still run. Idempotent; not for a handler.
  void stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyre::net::http
