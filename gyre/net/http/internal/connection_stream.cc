#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <ctime>
#include <utility>

#include "gyre/net/http/internal/connection.h"

namespace gyre::net::http::internal {
namespace {

constexpr std::size_t kMostPieceBytes = 65'536;
constexpr std::size_t kTunnelReadBytes = 16'384;
constexpr std::chrono::milliseconds kPauseOfFullPool{50};

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &fields);
  return text.data();
}

struct Framing {
  bool keep_alive;
  bool chunked;
  bool http_1_1;
};

std::string encode_head(const Response& response, const Framing& framing) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status, status_phrase(response.status), date_now());
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  // What is served is never to be guessed at: an output file is no page.
  head += "X-Content-Type-Options: nosniff\r\n";
  const bool without_length = response.status == 204 || response.status == 304;
  if (framing.chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (!without_length && (response.source == nullptr || response.source_bytes)) {
    head += fmt::format("Content-Length: {}\r\n", response.source_bytes.value_or(response.body.size()));
  }
  if (!framing.keep_alive) {
    head += "Connection: close\r\n";
  } else if (!framing.http_1_1) {
    head += "Connection: keep-alive\r\n";
  }
  return head + "\r\n";
}

}  // namespace

asio::awaitable<void> Connection::send_tunnel(Response response) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nConnection: Upgrade\r\n", response.status, status_phrase(response.status));
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += "\r\n";
  co_await write(asio::buffer(head));
  tunnels_ = true;
  asio::co_spawn(server_->context, read_tunnel(response.tunnel), asio::detached);
  response.source = std::move(response.tunnel);
  co_await send_source(response, false);
}

asio::awaitable<void> Connection::read_tunnel(std::shared_ptr<Tunnel> tunnel) {
  const auto self = shared_from_this();
  try {
    tunnel->take(std::exchange(buffer_, {}));  // Came with the request.
    std::string bytes(kTunnelReadBytes, '\0');
    boost::system::error_code failure;
    for (;;) {
      const std::size_t count = co_await read_some(asio::buffer(bytes), failure);
      if (failure) break;
      tunnel->take(std::string_view(bytes).substr(0, count));
    }
  } catch (const std::exception& error) {
    server_->options.logger->info("{}: the stream of {} ended: {}", server_->options.what, peer_, error.what());
  }
  peer_gone_ = true;
  pause_.cancel();
}

asio::awaitable<void> Connection::send(RequestParser& parser, Response response, bool keep_alive) {
  if (response.tunnel != nullptr) co_return co_await send_tunnel(std::move(response));
  const bool endless = response.source != nullptr && !response.source_bytes;
  const bool http_1_1 = !parser.head_done() || parser.http_1_1();
  const Framing framing{keep_alive && (!endless || http_1_1), endless && http_1_1, http_1_1};
  const std::string head = encode_head(response, framing);
  const bool without_body = parser.is_head() || response.status == 204 || response.status == 304;
  if (without_body || response.source == nullptr) {
    co_await write(asio::buffer(head), without_body ? asio::const_buffer() : asio::buffer(response.body));
  } else {
    co_await write(asio::buffer(head));
    co_await send_source(response, framing.chunked);
  }
  // To a client of HTTP/1.0 the end of the connection is the end of the stream.
  if (keep_alive && !framing.keep_alive) throw ConnectionLost(ErrorCode::kShutDown, "the stream has ended");
}

asio::awaitable<void> Connection::send_source(Response& response, bool chunked) {
  BodySource& source = *response.source;
  source.set_wake([door = server_->door, connection = weak_from_this()] {
    door->post([connection] {
      const auto self = connection.lock();
      if (!self) return;
      self->woken_ = true;
      self->pause_.cancel();
    });
  });
  std::uint64_t left = response.source_bytes.value_or(0);
  for (bool end = false; !end;) {
    const BodySource::Piece piece = co_await read_source(source);
    end = piece.end;
    if (response.source_bytes) {
      if (piece.bytes.size() > left || (end && piece.bytes.size() < left)) {
        throw ConnectionLost(ErrorCode::kInternal, "a source gave another number of bytes than it promised");
      }
      left -= piece.bytes.size();
    } else if (stopped_ && !end) {
      throw ConnectionLost(ErrorCode::kShutDown, "the server stops");
    }
    if (piece.bytes.empty()) {
      if (buffer_.empty()) std::string().swap(buffer_);  // One who waits keeps no memory.
      if (!end) co_await wait_for_source(piece.wait);
    } else if (chunked) {
      const std::string size = fmt::format("{:x}\r\n", piece.bytes.size());
      static constexpr std::string_view kEnd = "\r\n";
      co_await write(asio::buffer(size), asio::buffer(piece.bytes), asio::buffer(kEnd));
    } else {
      co_await write(asio::buffer(piece.bytes));
    }
  }
  static constexpr std::string_view kLastChunk = "0\r\n\r\n";
  if (chunked) co_await write(asio::buffer(kLastChunk));
  if (!watching_) co_return;
  boost::system::error_code ignored;
  static_cast<void>(socket_->cancel(ignored));  // watch_for_end()'s wait.
}

asio::awaitable<BodySource::Piece> Connection::read_source(BodySource& source) {
  if (std::optional<BodySource::Piece> at_hand = source.read_at_hand(kMostPieceBytes)) co_return std::move(*at_hand);
  BodySource::Piece piece;
  std::string failure;
  const std::function<void()> work = [&] {
    try {
      piece = source.read(kMostPieceBytes);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  };
  for (bool ran = false; !ran;) {
    ran = co_await on_pool(work);
    if (!ran) co_await wait_for_source(kPauseOfFullPool);
  }
  if (!failure.empty()) {
    server_->options.logger->warn("{} ended a response to {} before it was complete: {}", server_->options.what, peer_,
                                  failure);
    throw ConnectionLost(ErrorCode::kIo, failure);
  }
  co_return piece;
}

asio::awaitable<void> Connection::wait_for_source(std::chrono::milliseconds wait) {
  if (!tunnels_) watch_for_end();
  if (!std::exchange(woken_, false) && !peer_gone_ && !stopped_) {
    pause_.expires_after(wait);
    boost::system::error_code ignored;
    co_await pause_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    woken_ = false;
  }
  // Bytes of TLS itself may be what the socket has shown first.
  pollfd entry{socket_->native_handle(), POLLRDHUP, 0};
  if (tls_ && ::poll(&entry, 1, 0) > 0) peer_gone_ = true;
  if (peer_gone_) throw ConnectionLost(ErrorCode::kPeerLost, "the client closed it");
}

/// Notices a client that leaves while there is nothing to send it.
void Connection::watch_for_end() {
  if (std::exchange(watching_, true)) return;
  socket_->async_wait(AsyncSocket::wait_read, [self = shared_from_this()](const boost::system::error_code& failure) {
    self->watching_ = false;
    char byte = 0;
    if (failure) return;
    const ssize_t count = ::recv(self->socket_->native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count > 0) {
      self->watching_ = true;  // The next request waits already; watching on would be spinning.
      return;
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    self->peer_gone_ = true;
    self->pause_.cancel();
  });
}

}  // namespace gyre::net::http::internal
