#include "gyre/net/http/internal/connection.h"

#include <fmt/format.h>

#include <spdlog/logger.h>
#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fstream>
#include <limits>
#include <utility>

#include "gyre/net/socket.h"

namespace gyre::net::http::internal {
namespace {

constexpr std::size_t kMostTokenBytes = 512;
constexpr int kUnauthorized = 401;
constexpr std::size_t kFirstBytes =
    4'096;  // Of a request on an encrypted connection, which keeps them while it is idle.
constexpr std::size_t kSpooledAtOnce = 262'144;

/// Whom a rate counts: all connections from one address, or of one user of this host.
std::string client_of(int socket) {
  const Endpoint peer = peer_endpoint(socket);
  if (peer.kind == Endpoint::Kind::kTcp) return peer.host;
  return fmt::format("user {}", peer_credentials(socket).user);
}

/// As whom numbers appear that this user namespace has no name for.
bool stands_for_others(uid_t user) {
  uid_t overflow = 65'534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  if (user != overflow) return false;
  std::uint64_t first = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  return first != 0 || count < std::numeric_limits<uid_t>::max();  // Else every number has its own name here.
}

/// A process that this PID namespace has no number for belongs to a container with accounts of its own.
std::optional<uid_t> account_of(int socket) {
  if (leaves_host(socket)) return std::nullopt;
  const PeerCredentials peer = peer_credentials(socket);
  return peer.process == 0 || stands_for_others(peer.user) ? std::nullopt : std::optional(peer.user);
}

HttpError unauthorized(std::string_view message) {
  HttpError error(401, "Unauthorized", std::string(message));
  error.headers.set("WWW-Authenticate", "Bearer");
  return error;
}

HttpError too_many(std::string_view message, std::chrono::milliseconds pause) {
  HttpError error(429, "TooManyRequests", std::string(message));
  error.headers.set("Retry-After", fmt::format("{}", std::max<std::int64_t>(1, (pause.count() + 999) / 1'000)));
  return error;
}

/// Nothing when there is none, or in another form than "Bearer TOKEN".
std::optional<std::string> bearer_token(const Headers& headers) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string* header = headers.find("Authorization");
  if (header == nullptr || headers.count("Authorization") != 1) return std::nullopt;
  if (header->size() <= kScheme.size() || header->size() > kScheme.size() + kMostTokenBytes) return std::nullopt;
  if (!equal_without_case(std::string_view(*header).substr(0, kScheme.size()), kScheme)) return std::nullopt;
  return header->substr(kScheme.size());
}

const Route& route_of(const Router::Match& match, std::string_view path) {
  if (match.route != nullptr) return *match.route;
  if (match.allowed.empty()) throw HttpError(404, "NotFound", fmt::format("there is nothing at {}", path));
  std::string allowed;
  for (const Method method : match.allowed) allowed += (allowed.empty() ? "" : ", ") + std::string(method_name(method));
  HttpError error(405, "MethodNotAllowed", fmt::format("{} can only be used with {}", path, allowed));
  error.headers.set("Allow", allowed);
  throw error;
}

void check_query(const Target& target, const Route& route) {
  for (const auto& [name, value] : target.query) {
    if (std::find(route.query.begin(), route.query.end(), name) != route.query.end()) continue;
    throw HttpError(400, "UnknownParameter",
                    route.query.empty()
                        ? fmt::format("there is no parameter '{}'; this request takes none", name)
                        : fmt::format("there is no parameter '{}'; there are: {}", name, fmt::join(route.query, ", ")),
                    name);
  }
}

void check_body_size(std::uint64_t bytes, const Route& route) {
  if (bytes <= route.body_bytes) return;
  throw HttpError(413, "BodyTooLarge",
                  route.body_bytes == 0 ? "this request takes no body"
                                        : fmt::format("the body is larger than {} bytes", route.body_bytes));
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerState> server, UniqueFd socket)
    : server_(std::move(server)),
      peer_(describe_peer(socket.get())),
      peer_client_(client_of(socket.get())),
      account_(account_of(socket.get())),
      alarm_(server_->context),
      pause_(server_->context) {
  const bool encrypted = server_->tls != nullptr && leaves_host(socket.get());
  socket_ = adopt_socket(server_->context, std::move(socket));
  if (encrypted) tls_.emplace(*socket_, *server_->tls);
}

asio::awaitable<void> Connection::serve() {
  try {
    const bool ready = co_await begin_tls();
    if (ready) co_await serve_requests();
  } catch (const std::exception& error) {
    server_->options.logger->debug("{}: the connection of {} ended: {}", server_->options.what, peer_, error.what());
  }
  clear_alarm();
  close();
  server_->connections.erase(place);
  server_->connection_ended();
}

void Connection::begin_as_stranger() {
  if (server_->options.authenticate == nullptr) return;  // Nobody can prove anything.
  set_stranger(true);
  const auto& strangers = server_->strangers[peer_client_];
  if (strangers.size() > server_->options.limits.strangers_per_peer) strangers.front()->close();
}

void Connection::set_stranger(bool stranger) {
  if (stranger == stranger_) return;
  stranger_ = stranger;
  auto& strangers = server_->strangers[peer_client_];
  if (stranger) {
    stranger_place_ = strangers.insert(strangers.end(), this);
    return;
  }
  strangers.erase(stranger_place_);
  if (strangers.empty()) server_->strangers.erase(peer_client_);
}

void Connection::close() {
  set_idle(false);
  set_stranger(false);
  close_quietly(*socket_);
}

void Connection::stop() {
  stopped_ = true;
  if (idle_) close();
  pause_.cancel();
}

void Connection::set_idle(bool idle) {
  if (idle == idle_) return;
  idle_ = idle;
  if (idle) {
    idle_place_ = server_->idle.insert(server_->idle.end(), this);
  } else {
    server_->idle.erase(idle_place_);
  }
}

asio::awaitable<void> Connection::serve_requests() {
  // No co_await in a condition, here and elsewhere: GCC 12 miscompiles some of them.
  for (;;) {
    const bool has_request = co_await wait_for_request();
    if (!has_request) co_return;
    const Next next = co_await serve_request();
    if (next == Next::kClose) co_return;
  }
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (!buffer_.empty()) co_return true;
  if (stopped_) co_return false;
  std::string().swap(buffer_);  // An idle connection keeps no memory.
  set_alarm(stranger_ ? server_->options.limits.head : server_->options.limits.idle);
  set_idle(true);
  boost::system::error_code failure;
  if (tls_) {  // Bytes that have come may be in there already, where the socket does not show them.
    buffer_.resize(kFirstBytes);
    const std::size_t count = co_await read_some(asio::buffer(buffer_), failure);
    buffer_.resize(count);
  } else {
    co_await socket_->async_wait(AsyncSocket::wait_read, asio::redirect_error(asio::use_awaitable, failure));
  }
  set_idle(false);
  co_return !failure;
}

Shares::Share Connection::take_body_share(RequestParser& parser) {
  if (!parser.has_body() || parser.done()) return {};
  const std::size_t most = server_->options.limits.bodies_per_user;
  Shares::Share share = server_->bodies.take(client_name(parser.request().sender.user), most);
  if (share) return share;
  throw HttpError(429, "TooManyBodies",
                  fmt::format("{} sends {} requests with a body at once already; wait for one of them",
                              client_name(parser.request().sender.user), most));
}

Shares::Share Connection::take_stream_share(const Request& request, const Response& response) {
  const bool endless = response.tunnel != nullptr || (response.source != nullptr && !response.source_bytes);
  if (!endless) return {};
  const std::size_t most = server_->options.limits.streams_per_user;
  Shares::Share share = server_->streams.take(client_name(request.sender.user), most);
  if (share) return share;
  throw HttpError(
      429, "TooManyStreams",
      fmt::format("{} follows {} logs and lists of events at once already, or has connections to nodes instead; end "
                  "some of them",
                  client_name(request.sender.user), most));
}

std::string Connection::client_name(const std::string& user) const {
  return user.empty() ? "peer " + peer_client_ : fmt::format("user '{}'", user);
}

asio::awaitable<Connection::Next> Connection::serve_request() {
  RequestParser parser(server_->options.limits.header_bytes);
  error_.clear();
  std::optional<Response> response;
  Shares::Share stream;
  bool readable = false;  // Else nobody knows where the next request begins.
  try {
    co_await read_head(parser);
    readable = true;
    response = co_await answer(parser);
    stream = take_stream_share(parser.request(), *response);
  } catch (const ConnectionLost&) {
    throw;
  } catch (const std::exception& failure) {
    response = refuse(as_http_error(failure));
  }
  server_->options.logger->debug("{}: {} {} from {}: {}", server_->options.what, method_name(parser.request().method),
                                 parser.target_text(), peer_, response->status);
  co_await audit(parser.request(), response->status);
  const bool keep_alive = readable && parser.done() && parser.keep_alive() && !stopped_ && response->tunnel == nullptr;
  co_await send(parser, std::move(*response), keep_alive);
  if (keep_alive) co_return Next::kRequest;
  co_await linger();
  co_return Next::kClose;
}

asio::awaitable<void> Connection::audit(const Request& request, int status) {
  if (server_->options.audit == nullptr) co_return;
  const bool change = request.method != Method::kGet && request.method != Method::kHead;
  const bool refused = status == kUnauthorized || status == 403 || status == 429;
  if (!refused && !(change && status != 404 && status != 405)) co_return;
  if (status >= 400 && !server_->audited_refusals.take(peer_client_, SteadyClock::now())) {
    ++server_->unaudited;
    co_return;
  }
  std::string path;
  for (const std::string& segment : request.target.segments) path += "/" + segment;
  const AuditEntry entry{.user = request.sender.user,
                         .peer = peer_,
                         .method = request.method,
                         .path = path.empty() ? "/" : std::move(path),
                         .status = status,
                         .error = error_,
                         .command = request.command,
                         .omitted = std::exchange(server_->unaudited, 0)};
  const std::function<void()> work = [&] { server_->options.audit(entry); };
  const bool ran = co_await on_pool(work);
  if (!ran) work();  // What was done is written down, however many requests wait.
}

Response Connection::refuse(const HttpError& error) {
  const int status = error.status();
  error_ = error.name();
  // What a handler answers about its own resources is the client's affair; what a client does to the server is not.
  const bool worth_telling = status == 400 || status == 401 || status == 408 || status == 413 || status == 414 ||
                             status == 429 || status == 431 || status == 501 || status == 503 || status == 505;
  if (worth_telling) server_->log_refusal(peer_, fmt::format("{}: {}", status, error.what()));
  return error_response(error);
}

asio::awaitable<Response> Connection::answer(RequestParser& parser) {
  Request& request = parser.request();
  request.peer = peer_;
  Router::Match match = server_->router.find(request.method, request.target);
  const bool open = server_->options.authenticate == nullptr || (match.route != nullptr && match.route->open);
  if (!open) request.sender = co_await authenticate(request.headers);
  if (!open) set_stranger(false);
  check_rate(request.sender.user);
  const Route& route = route_of(match, parser.target_text().substr(0, parser.target_text().find('?')));
  check_query(request.target, route);
  request.parameters = std::move(match.parameters);
  check_body_size(parser.content_length().value_or(parser.has_body() ? 1 : 0), route);
  const Shares::Share body = take_body_share(parser);
  const std::shared_ptr<void> room = co_await admit(parser, route);
  co_await read_body(parser, route);
  co_return co_await handle(request, route);
}

asio::awaitable<Identity> Connection::authenticate(const Headers& headers) {
  const std::optional<std::string> token = bearer_token(headers);
  std::optional<Identity> sender;
  std::optional<HttpError> failure;
  const bool claims = headers.count("Authorization") > 0;
  if (token || (account_ && !claims)) {
    const Credentials credentials{.token = token ? std::string_view(*token) : std::string_view(), .account = account_};
    const std::function<void()> work = [&] {
      try {
        sender = server_->options.authenticate(credentials);
      } catch (const std::exception& error) {
        failure = as_http_error(error);
        if (failure->status() == kUnauthorized) return;
        server_->options.logger->error("{} cannot tell who sends a request: {}", server_->options.what, error.what());
      }
    };
    const bool ran = co_await on_pool(work);
    if (!ran) throw HttpError(503, "Overloaded", "too many requests are waiting; try again");
    if (failure && failure->status() != kUnauthorized) throw HttpError(*failure);
    if (sender) co_return std::move(*sender);
  }
  if (!server_->failed_logins.take(peer_client_, SteadyClock::now())) {
    throw too_many("too many requests without a valid token", server_->failed_logins.pause());
  }
  if (failure) throw HttpError(*failure);
  throw unauthorized(token ? "the token is not valid"
                           : "this needs a token: send the header 'Authorization: Bearer TOKEN'");
}

void Connection::check_rate(const std::string& user) {
  if (server_->requests.take(client_name(user), SteadyClock::now())) return;
  throw too_many("too many requests; slow down", server_->requests.pause());
}

asio::awaitable<std::shared_ptr<void>> Connection::admit(RequestParser& parser, const Route& route) {
  std::shared_ptr<void> room;
  if (!route.admit || !parser.has_body()) co_return room;
  std::optional<HttpError> failure;
  const std::function<void()> work = [&] {
    try {
      room = route.admit(parser.request(), parser.content_length().value_or(route.body_bytes));
    } catch (const std::exception& error) {
      failure = as_http_error(error);
    }
  };
  const bool ran = co_await on_pool(work);
  if (!ran) throw HttpError(503, "Overloaded", "too many requests are waiting; try again");
  if (failure) throw HttpError(*failure);
  co_return room;
}

asio::awaitable<Response> Connection::handle(Request& request, const Route& route) {
  Response response;
  std::optional<HttpError> failure;
  const std::function<void()> work = [&] {
    try {
      response = route.handler(request);
    } catch (const std::exception& error) {
      failure = as_http_error(error);
      if (failure->status() >= 500) {
        server_->options.logger->error("{} failed to handle {} {}: {}", server_->options.what,
                                       method_name(request.method), to_string(request.target), error.what());
      }
    }
  };
  const bool ran = co_await on_pool(work);
  if (!ran) throw HttpError(503, "Overloaded", "too many requests are waiting; try again");
  if (failure) error_ = failure->name();
  co_return failure ? error_response(*failure) : std::move(response);
}

asio::awaitable<void> Connection::read_body(RequestParser& parser, const Route& route) {
  if (parser.has_body() && parser.expects_continue() && buffer_.empty()) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await write(asio::buffer(kContinue));
  }
  Request& request = parser.request();
  std::string unwritten;
  const ServerLimits& limits = server_->options.limits;
  const auto began = SteadyClock::now();
  while (!parser.done()) {
    const std::size_t consumed = buffer_.empty() ? 0 : parser.put(buffer_);
    buffer_.erase(0, consumed);
    const std::string bytes = parser.take_body();
    request.body_bytes += bytes.size();
    check_body_size(request.body_bytes, route);
    (route.body_to_file ? unwritten : request.body) += bytes;
    if (unwritten.size() >= kSpooledAtOnce) co_await spool(request, std::exchange(unwritten, {}), false);
    if (parser.done() || consumed > 0) continue;
    // A body may not be slower on average than its least rate, nor pause for longer than `read`.
    const std::chrono::milliseconds allowed =
        limits.read + std::chrono::milliseconds(request.body_bytes * 1'000 / limits.body_bytes_per_second);
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - began);
    set_alarm(std::clamp(allowed - spent, std::chrono::milliseconds(0), limits.read));
    co_await read_more();
  }
  clear_alarm();
  if (route.body_to_file) co_await spool(request, std::move(unwritten), true);
}

}  // namespace gyre::net::http::internal
