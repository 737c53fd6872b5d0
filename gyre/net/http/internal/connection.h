#pragma once

#include <sys/types.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/net/http/error.h"
#include "gyre/net/http/internal/request_parser.h"
#include "gyre/net/http/internal/server_state.h"

namespace gyre::net::http::internal {

/// The connection ends here and now: it is broken, or the response cannot be completed.
struct ConnectionLost : Error {
  using Error::Error;
};

/// One client's connection: reads requests, one at a time, and answers them. Lives as long as serve() runs. On the
/// loop's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> server, UniqueFd socket);

  /// Until either side ends the connection. Never throws.
  asio::awaitable<void> serve();

  /// Ends it between two requests or in an endless stream; another response may finish and is the last one.
  void stop();
  /// Ends it wherever it is.
  void close();
  /// From now on it has to prove itself soon, and is among the first to go.
  void begin_as_stranger();

  /// Where the server's list has it.
  std::list<std::shared_ptr<Connection>>::iterator place;

 private:
  enum class Next : std::uint8_t { kRequest, kClose };

  // connection.cc: the life of a connection.
  asio::awaitable<void> serve_requests();
  asio::awaitable<bool> wait_for_request();
  void set_idle(bool idle);
  void set_stranger(bool stranger);
  asio::awaitable<Next> serve_request();
  asio::awaitable<Response> answer(RequestParser& parser);
  asio::awaitable<Identity> authenticate(const Headers& headers);
  void check_rate(const std::string& user);
  // HttpError(429) where the sender has as many at once as one may have.
  Shares::Share take_body_share(RequestParser& parser);
  Shares::Share take_stream_share(const Request& request, const Response& response);
  /// Whom rates and shares count.
  std::string client_name(const std::string& user) const;
  /// Asks the route whether it takes the request's body.
  asio::awaitable<std::shared_ptr<void>> admit(RequestParser& parser, const Route& route);
  asio::awaitable<Response> handle(Request& request, const Route& route);
  /// Where the request deserves it.
  asio::awaitable<void> audit(const Request& request, int status);
  /// The answer to a request that failed; logs what deserves it.
  Response refuse(const HttpError& error);

  // connection_io.cc: bytes in and out, each wait under an alarm.
  /// False where the client has gone, or speaks something else than TLS where that is needed.
  asio::awaitable<bool> begin_tls();
  asio::awaitable<void> read_head(RequestParser& parser);
  asio::awaitable<void> read_body(RequestParser& parser, const Route& route);
  /// Appends to the request's file; `last` takes it back to its beginning.
  asio::awaitable<void> spool(Request& request, std::string bytes, bool last);
  asio::awaitable<void> read_more();
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into, boost::system::error_code& failure);
  asio::awaitable<void> write(asio::const_buffer first, asio::const_buffer second = {}, asio::const_buffer third = {});
  asio::awaitable<void> linger();
  /// Runs `work`, which must not throw, on the pool. False when too much waits there already: it is not run.
  asio::awaitable<bool> on_pool(std::function<void()> work);
  void set_alarm(std::chrono::milliseconds limit);
  void clear_alarm();

  // connection_stream.cc: a response.
  asio::awaitable<void> send(RequestParser& parser, Response response, bool keep_alive);
  asio::awaitable<void> send_source(Response& response, bool chunked);
  asio::awaitable<BodySource::Piece> read_source(BodySource& source);
  asio::awaitable<void> wait_for_source(std::chrono::milliseconds wait);
  void watch_for_end();
  asio::awaitable<void> send_tunnel(Response response);
  asio::awaitable<void> read_tunnel(std::shared_ptr<Tunnel> tunnel);

  std::shared_ptr<ServerState> server_;
  std::shared_ptr<AsyncSocket> socket_;
  std::optional<asio::ssl::stream<AsyncSocket&>> tls_;  // Over the socket, where it is encrypted.
  std::string peer_;                                    // For the log.
  std::string peer_client_;                             // For rates: without the port or the process.
  std::optional<uid_t> account_;                        // Credentials::account.
  std::string buffer_;                                  // What has come and is not consumed.
  asio::steady_timer alarm_;
  std::uint64_t alarm_number_ = 0;
  bool alarm_passed_ = false;
  asio::steady_timer pause_;
  bool woken_ = false;
  bool peer_gone_ = false;
  bool watching_ = false;
  bool stopped_ = false;
  bool tunnels_ = false;  // Something reads from the client for as long as it is there.
  std::string error_;     // The name of the one that the present request has met.
  bool stranger_ = false;
  std::list<Connection*>::iterator stranger_place_;
  bool idle_ = false;
  std::list<Connection*>::iterator idle_place_;
};

}  // namespace gyre::net::http::internal
