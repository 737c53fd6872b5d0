#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <utility>

#include "gyre/net/http/internal/connection.h"

namespace gyre::net::http::internal {
namespace {

constexpr std::size_t kReadAtOnce = 16'384;
/// What may wait in memory of a request: a head, or a chunk's header, must fit.
constexpr std::size_t kMostBufferedBytes = 65'536;
/// After the last response a client that still sends is read from, so that it sees the response and not a reset.
constexpr std::chrono::milliseconds kLongestLinger{2'000};
constexpr std::size_t kMostLingerBytes = std::size_t{32} << 20;

[[noreturn]] void throw_lost(const boost::system::error_code& failure) {
  throw ConnectionLost(ErrorCode::kPeerLost, failure == asio::error::eof ? "the client closed it" : failure.message());
}

/// A file without a name, gone when it is closed.
UniqueFd open_spool(const std::filesystem::path& directory) {
  UniqueFd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) throw system_error(fmt::format("making a temporary file in {}", directory.string()), errno);
  return file;
}

/// Several bodies may come at once: whoever writes looks.
void check_reserve(const UniqueFd& spool, const ServerOptions& options, std::size_t bytes) {
  struct statvfs status{};
  if (options.spool_keeps_free == 0 || ::fstatvfs(spool.get(), &status) != 0) return;
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  if (free >= options.spool_keeps_free + bytes) return;
  throw HttpError(507, "DiskReserve",
                  fmt::format("the disk of {} has {} bytes free, and it keeps {} free; ask an administrator to free "
                              "some space in {}",
                              options.what, free, options.spool_keeps_free, options.spool_directory.string()));
}

}  // namespace

void Connection::set_alarm(std::chrono::milliseconds limit) {
  alarm_passed_ = false;
  const std::uint64_t number = ++alarm_number_;
  alarm_.expires_after(limit);
  alarm_.async_wait([self = shared_from_this(), number](const boost::system::error_code& cancelled) {
    // An alarm that is cancelled too late is an alarm of before.
    if (cancelled || number != self->alarm_number_) return;
    self->alarm_passed_ = true;
    boost::system::error_code ignored;
    static_cast<void>(self->socket_->cancel(ignored));
  });
}

void Connection::clear_alarm() {
  ++alarm_number_;
  alarm_passed_ = false;
  alarm_.cancel();
}

asio::awaitable<bool> Connection::begin_tls() {
  if (!tls_) co_return true;
  set_alarm(server_->options.limits.head);
  boost::system::error_code failure;
  co_await tls_->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, failure));
  clear_alarm();
  co_return !failure;
}

asio::awaitable<std::size_t> Connection::read_some(asio::mutable_buffer into, boost::system::error_code& failure) {
  if (tls_) co_return co_await tls_->async_read_some(into, asio::redirect_error(asio::use_awaitable, failure));
  co_return co_await socket_->async_read_some(into, asio::redirect_error(asio::use_awaitable, failure));
}

asio::awaitable<void> Connection::read_more() {
  const auto too_slow = [] { return HttpError(408, "RequestTimeout", "the request took too long to arrive"); };
  if (alarm_passed_) throw too_slow();
  if (buffer_.size() >= kMostBufferedBytes) {
    throw HttpError(400, "MalformedRequest", "the request cannot be read: a chunk's header is too long");
  }
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kReadAtOnce);
  boost::system::error_code failure;
  const std::size_t count = co_await read_some(asio::buffer(buffer_.data() + before, kReadAtOnce), failure);
  buffer_.resize(before + count);
  if (alarm_passed_ && count == 0) throw too_slow();
  if (failure) throw_lost(failure);
}

asio::awaitable<void> Connection::read_head(RequestParser& parser) {
  set_alarm(server_->options.limits.head);
  for (;;) {
    buffer_.erase(0, buffer_.empty() ? 0 : parser.put(buffer_));
    if (parser.head_done()) break;
    co_await read_more();
  }
  clear_alarm();
}

asio::awaitable<void> Connection::spool(Request& request, std::string bytes, bool last) {
  std::optional<HttpError> failure;
  const std::function<void()> work = [&] {
    try {
      if (!request.body_file) request.body_file = open_spool(server_->options.spool_directory);
      check_reserve(request.body_file, server_->options, bytes.size());
      gyre::write_all(request.body_file.get(), std::as_bytes(std::span(bytes)), "the body of a request");
      if (last && ::lseek(request.body_file.get(), 0, SEEK_SET) != 0) throw system_error("rewinding a body", errno);
    } catch (const std::exception& error) {
      failure = as_http_error(error);
    }
  };
  clear_alarm();
  const bool ran = co_await on_pool(work);
  if (!ran) throw HttpError(503, "Overloaded", "too many requests are waiting; try again");
  if (failure) throw HttpError(*failure);
}

asio::awaitable<void> Connection::write(asio::const_buffer first, asio::const_buffer second, asio::const_buffer third) {
  const std::array<asio::const_buffer, 3> buffers{first, second, third};
  set_alarm(server_->options.limits.write);
  boost::system::error_code failure;
  if (tls_) {
    co_await asio::async_write(*tls_, buffers, asio::redirect_error(asio::use_awaitable, failure));
  } else {
    co_await asio::async_write(*socket_, buffers, asio::redirect_error(asio::use_awaitable, failure));
  }
  const bool too_slow = alarm_passed_;
  clear_alarm();
  if (too_slow) throw ConnectionLost(ErrorCode::kTimeout, "the client does not read the response");
  if (failure) throw_lost(failure);
}

asio::awaitable<void> Connection::linger() {
  boost::system::error_code failure;
  static_cast<void>(socket_->shutdown(AsyncSocket::shutdown_send, failure));
  set_alarm(kLongestLinger);
  buffer_.resize(kReadAtOnce);
  for (std::size_t discarded = 0; !failure && !alarm_passed_ && discarded < kMostLingerBytes;) {
    discarded +=
        co_await socket_->async_read_some(asio::buffer(buffer_), asio::redirect_error(asio::use_awaitable, failure));
  }
  clear_alarm();
}

asio::awaitable<bool> Connection::on_pool(std::function<void()> work) {
  auto initiation = [this](auto&& completion, std::function<void()> job) {
    // std::function must be copyable; the completion, which owns this coroutine, is not.
    auto shared = std::make_shared<std::decay_t<decltype(completion)>>(std::forward<decltype(completion)>(completion));
    asio::io_context& context = server_->context;
    auto finish = [&context](auto handler, bool ran) {
      asio::post(context, [handler = std::move(handler), ran]() mutable { (*handler)(ran); });
    };
    const bool queued = server_->pool.submit([shared, job = std::move(job), finish]() mutable {
      job();
      finish(std::move(shared), true);
    });
    if (!queued) finish(std::move(shared), false);
  };
  const bool ran = co_await asio::async_initiate<const asio::use_awaitable_t<>&, void(bool)>(
      initiation, asio::use_awaitable, std::move(work));
  co_return ran;
}

}  // namespace gyre::net::http::internal
