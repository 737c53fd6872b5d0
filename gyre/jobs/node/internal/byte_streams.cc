#include "gyre/jobs/node/internal/byte_streams.h"

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

#include "gyre/base/acting_as.h"
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

/// One connection.
class ByteStreams::Stream {
 public:
  Stream(std::uint32_t number, std::uint16_t port) : number_(number), port_(port) { connect(); }
  ~Stream() {
    if (over_ != "") orders::reset_when_closed(socket_.get());
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int fd() const { return socket_.get(); }
  std::uint32_t interest() const {
    std::uint32_t events = 0;
    if (connecting_ || !waiting_.empty()) events |= EPOLLOUT;
    if (!connecting_ && !read_all_ && credit_ > 0) events |= EPOLLIN;
    return events;
  }
  /// Why it is over; empty: as it should be.
  const std::optional<std::string>& over() const { return over_; }

  void take(const orders::StreamMessage& message, const Send& send) {
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

  void step(std::uint32_t events, const Send& send) {
    if (connecting_ && !finish_connecting()) return;
    if ((events & EPOLLOUT) != 0) write(send);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(send);
  }

 private:
  void connect() {
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

  void fail(int failure) {
    over_ = failure == ECONNREFUSED ? fmt::format("nothing listens at port {} of the node", port_)
                                    : fmt::format("port {} of the node: {}", port_, reason_of(failure));
  }

  bool finish_connecting() {
    int failure = 0;
    socklen_t size = sizeof failure;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) fail(failure);
    connecting_ = false;
    return failure == 0;
  }

  void finish() {
    if (failure_ != 0) return fail(failure_);
    over_ = "";
  }

  void write(const Send& send) {
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

  void read(const Send& send) {
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

  const std::uint32_t number_;
  const std::uint16_t port_;
  UniqueFd socket_;
  bool connecting_ = false;
  std::string waiting_;  // For the socket.
  std::uint64_t owed_ = 0;
  std::uint64_t credit_ = orders::kStreamWindow;
  bool ended_ = false;     // The client sends no more.
  bool shut_ = false;      // The socket has been told so.
  bool read_all_ = false;  // The socket has no more for us.
  int failure_ = 0;        // Why the socket took no more.
  std::optional<std::string> over_;
};

ByteStreams::ByteStreams() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw system_error("epoll_create1", errno);
}

ByteStreams::~ByteStreams() = default;

void ByteStreams::serve(const std::string& attempt, const std::optional<UserId>& account, const Send& send) {
  if (attempt != attempt_) end_all("the job has ended", send);
  attempt_ = attempt;
  account_ = account;
}

void ByteStreams::disconnected() { streams_.clear(); }

void ByteStreams::end_all(const std::string& why, const Send& send) {
  for (const auto& [number, stream] : streams_) send(stream_message::kClosed, encode_stream(number, as_bytes(why)));
  streams_.clear();
}

void ByteStreams::open(std::uint32_t number, const orders::StreamRequest& request, const Send& send) {
  const auto refuse = [&](std::string_view why) {
    send(stream_message::kClosed, encode_stream(number, as_bytes(why)));
  };
  if (attempt_.empty() || request.attempt != attempt_) return refuse("the job does not run on the node any more");
  if (streams_.contains(number) || streams_.size() >= orders::kMostStreams) {
    return refuse(
        fmt::format("{} connections to the node are open already, the most that there can be", orders::kMostStreams));
  }
  std::unique_ptr<Stream> stream;
  {
    // To whoever asks whose a connection is, it is the job's.
    std::optional<ActingAs> acting;
    if (account_) acting.emplace(*account_);
    stream = std::make_unique<Stream>(number, request.port);
  }
  if (stream->over()) return refuse(*stream->over());
  streams_[number] = std::move(stream);
  settle(number, send);
}

void ByteStreams::settle(std::uint32_t number, const Send& send) {
  const auto found = streams_.find(number);
  if (const auto& over = found->second->over()) {
    send(stream_message::kClosed, encode_stream(number, as_bytes(*over)));
    streams_.erase(found);
    return;
  }
  epoll_event event{.events = found->second->interest(), .data = {.u32 = number}};
  const int fd = found->second->fd();
  // One that nothing is wanted of would be reported for ever once it is reset.
  if (event.events == 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  } else if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

bool ByteStreams::obey(const net::Message& message, const Send& send) {
  if (!orders::is_about_streams(message.type)) return false;
  const orders::StreamMessage part = orders::stream_message_from(message);
  if (part.type == stream_message::kOpen) {
    open(part.stream, stream_request_from(part), send);
    return true;
  }
  const auto found = streams_.find(part.stream);
  if (found == streams_.end()) return true;  // It has just ended.
  if (part.type == stream_message::kClosed) {
    streams_.erase(found);
    return true;
  }
  found->second->take(part, send);
  settle(part.stream, send);
  return true;
}

void ByteStreams::step(const Send& send) {
  std::array<epoll_event, orders::kMostStreams> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t number = events[static_cast<std::size_t>(i)].data.u32;
    const auto found = streams_.find(number);
    if (found == streams_.end()) continue;
    found->second->step(events[static_cast<std::size_t>(i)].events, send);
    settle(number, send);
  }
}

}  // namespace gyre::jobs::node::internal
