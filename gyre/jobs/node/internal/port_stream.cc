#include "gyre/jobs/node/internal/port_stream.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/jobs/orders/cut_off.h"

namespace gyre::jobs::node::internal {

namespace {

namespace stream_message = orders::stream_message;
using orders::encode_credit;
using orders::encode_stream;

/// Credit is given for so much at once, so that small writes do not cost a message each.
constexpr std::uint64_t kCreditAtOnce = orders::kStreamWindow / 4;

std::string reason_of(int failure) { return std::generic_category().message(failure); }

}  // namespace

PortStream::PortStream(std::uint32_t number, std::uint16_t port) : number_(number), port_(port) { connect(); }

PortStream::~PortStream() {
  if (over_ != "") orders::reset_when_closed(socket_.get());
}

std::uint32_t PortStream::interest() const {
  std::uint32_t events = 0;
  if (connecting_ || !waiting_.empty()) events |= EPOLLOUT;
  if (!connecting_ && !read_all_ && credit_ > 0) events |= EPOLLIN;
  return events;
}

void PortStream::take(const orders::StreamMessage& message, const Send& send) {
  if (message.type == stream_message::kBytes) {
    if (ended_ || waiting_.size() + message.bytes.size() > orders::kStreamWindow) {
      throw Error(ErrorCode::kProtocol, "the service sends more on a stream than there is room for");
    }
    waiting_ += as_text(message.bytes);
    if (!connecting_) write(send);
  } else if (message.type == stream_message::kCredit) {
    credit_ = std::min(credit_ + credit_from(message), orders::kStreamWindow);
  } else if (message.type == stream_message::kEnd) {
    ended_ = true;
    if (!connecting_) write(send);
  }
}

void PortStream::step(std::uint32_t events, const Send& send) {
  if (connecting_ && !finish_connecting()) return;
  if ((events & EPOLLOUT) != 0) write(send);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(send);
}

void PortStream::connect() {
  socket_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_) return fail(errno);
  const int yes = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(port_);
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) return;
  if (errno != EINPROGRESS) return fail(errno);
  connecting_ = true;
}

void PortStream::fail(int failure) {
  over_ = failure == ECONNREFUSED ? fmt::format("nothing listens at port {} of the node", port_)
                                  : fmt::format("port {} of the node: {}", port_, reason_of(failure));
}

bool PortStream::finish_connecting() {
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  if (failure != 0) fail(failure);
  connecting_ = false;
  return failure == 0;
}

void PortStream::finish() {
  if (failure_ != 0) return fail(failure_);
  over_ = "";
}

void PortStream::write(const Send& send) {
  std::size_t written = 0;
  while (!shut_ && written < waiting_.size()) {
    const ssize_t count =
        ::send(socket_.get(), waiting_.data() + written, waiting_.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      failure_ = errno;
      shut_ = true;  // It takes no more; what it has sent before may still be there.
      break;
    }
    written += static_cast<std::size_t>(count);
  }
  if (shut_) written = waiting_.size();
  waiting_.erase(0, written);
  owed_ += written;
  if (owed_ >= kCreditAtOnce || (waiting_.empty() && owed_ > 0)) {
    send(stream_message::kCredit, encode_credit(number_, static_cast<std::uint32_t>(std::exchange(owed_, 0))));
  }
  if (ended_ && waiting_.empty() && !std::exchange(shut_, true)) ::shutdown(socket_.get(), SHUT_WR);
  if (shut_ && read_all_) finish();
}

void PortStream::read(const Send& send) {
  std::array<std::byte, orders::kMostStreamPieceBytes> bytes;
  while (!read_all_ && !over_ && credit_ > 0) {
    const ssize_t count = ::recv(socket_.get(), bytes.data(), std::min<std::uint64_t>(bytes.size(), credit_), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) return fail(errno);
    if (count == 0 && failure_ != 0) return fail(failure_);  // recv() does not repeat what send() has reported.
    if (count == 0) {
      read_all_ = true;
      send(stream_message::kEnd, encode_stream(number_));
      if (shut_) finish();
      return;
    }
    credit_ -= static_cast<std::uint64_t>(count);
    send(stream_message::kBytes, encode_stream(number_, std::span(bytes).first(static_cast<std::size_t>(count))));
  }
}

}  // namespace gyre::jobs::node::internal
