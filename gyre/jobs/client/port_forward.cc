#include "gyre/jobs/client/port_forward.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/jobs/orders/cut_off.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/message.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::client {

namespace {

namespace stream_message = orders::stream_message;

constexpr const char* kProtocol = "gyre-stream";
constexpr std::uint64_t kCreditAtOnce = orders::kStreamWindow / 4;
constexpr std::size_t kMostConnections = orders::kMostStreams;

class Pump {
 public:
  Pump(net::http::ClientTunnel& tunnel, const UniqueFd& socket, int stop_fd)
      : tunnel_(tunnel), socket_(socket), stop_fd_(stop_fd) {}
  ~Pump() {
    if (!is_whole_) orders::reset_when_closed(socket_.get());
  }
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  std::string run() {
    while (!over_ || (over_->empty() && !waiting_.empty() && !local_failed_)) step();
    return *over_;
  }

 private:
  void step() {
    const bool reads = !local_ended_ && credit_ > 0 && !over_;
    const auto socket_events = static_cast<short>((reads ? POLLIN : 0) | (waiting_.empty() ? 0 : POLLOUT));
    std::array<pollfd, 3> waits = {{{over_ ? -1 : tunnel_.fd(), POLLIN, 0},
                                    {socket_events == 0 && shut_ ? -1 : socket_.get(), socket_events, 0},
                                    {stop_fd_, POLLIN, 0}}};
    const bool has_more = !over_ && tunnel_.has_more();
    if (::poll(waits.data(), waits.size(), has_more ? 0 : -1) < 0 && errno != EINTR) throw system_error("poll", errno);
    if (waits[2].revents != 0) return close("");
    if (has_more || waits[0].revents != 0) take();
    if ((waits[1].revents & POLLOUT) != 0) write();
    if (over_) return;
    if ((waits[1].revents & POLLERR) != 0) return close("");
    if (reads && (waits[1].revents & (POLLIN | POLLHUP)) != 0) read();
  }

  void send(std::uint16_t type, const Bytes& payload) { tunnel_.write(as_text(net::encode_message(type, payload))); }

  void close(const std::string& why) {
    if (!over_) send(stream_message::kClosed, orders::encode_stream(0));
    over_ = why;
    waiting_.clear();
  }

  void take() {
    std::string bytes;
    if (!tunnel_.read(bytes)) throw Error(ErrorCode::kPeerLost, "no end was announced");
    parser_.append(as_bytes(bytes));
    while (const auto message = parser_.next()) {
      const orders::StreamMessage part = orders::stream_message_from(*message);
      switch (part.type) {
        case stream_message::kBytes: waiting_ += as_text(part.bytes); break;
        case stream_message::kCredit: credit_ += credit_from(part); break;
        case stream_message::kEnd: remote_ended_ = true; break;
        default:
          over_ = std::string(as_text(part.bytes));
          is_whole_ = over_->empty();
          return;
      }
      if (waiting_.size() > orders::kStreamWindow) throw Error(ErrorCode::kProtocol, "the node sends more than it may");
    }
    write();
  }

  void write() {
    std::size_t written = 0;
    while (written < waiting_.size()) {
      const ssize_t count =
          ::send(socket_.get(), waiting_.data() + written, waiting_.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) break;
      if (count < 0) {
        local_failed_ = true;
        return close("");  // Whoever has connected does not want any more.
      }
      written += static_cast<std::size_t>(count);
    }
    waiting_.erase(0, written);
    owed_ += written;
    if (!over_ && (owed_ >= kCreditAtOnce || (waiting_.empty() && owed_ > 0))) {
      send(stream_message::kCredit, orders::encode_credit(0, static_cast<std::uint32_t>(std::exchange(owed_, 0))));
    }
    if (remote_ended_ && waiting_.empty() && !std::exchange(shut_, true)) ::shutdown(socket_.get(), SHUT_WR);
  }

  void read() {
    Bytes bytes(std::min<std::uint64_t>(orders::kMostStreamPieceBytes, credit_));
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count < 0) return close("");
    if (count == 0) {
      local_ended_ = true;
      return send(stream_message::kEnd, orders::encode_stream(0));
    }
    credit_ -= static_cast<std::uint64_t>(count);
    bytes.resize(static_cast<std::size_t>(count));
    send(stream_message::kBytes, orders::encode_stream(0, bytes));
  }

  net::http::ClientTunnel& tunnel_;
  const UniqueFd& socket_;
  const int stop_fd_;
  net::MessageParser parser_;
  std::string waiting_;  // For the socket.
  std::uint64_t owed_ = 0;
  std::uint64_t credit_ = orders::kStreamWindow;
  bool local_ended_ = false;
  bool local_failed_ = false;
  bool remote_ended_ = false;
  bool shut_ = false;
  bool is_whole_ = false;  // Both directions have ended as they should.
  std::optional<std::string> over_;
};

}  // namespace

std::string pass_on(net::http::ClientTunnel& tunnel, const UniqueFd& socket, int stop_fd) {
  try {
    return Pump(tunnel, socket, stop_fd).run();
  } catch (const Error& error) {
    // A service that is killed closes the connection, or resets it where it had not read everything.
    if (error.code() != ErrorCode::kPeerLost) throw;
    return "the service has closed the connection; try again";
  }
}

PortForward::PortForward(ForwardOptions options) : options_(std::move(options)) {
  Session(options_.session).post(path(), query());
  listener_ = net::listen_on({net::Endpoint::Kind::kTcp, "127.0.0.1", options_.local_port});
  local_port_ = net::local_endpoint(listener_.get()).port;
}

Path PortForward::path() const { return below(path_of(options_.job), "forward"); }

Query PortForward::query() const {
  return {{"port", std::to_string(options_.remote_port)}, {"rank", std::to_string(options_.rank)}};
}

PortForward::~PortForward() {
  stop_.notify();
  for (Worker& worker : workers_) worker.thread.join();
}

void PortForward::accept() {
  workers_.remove_if([](Worker& worker) {
    if (!*worker.done) return false;
    worker.thread.join();
    return true;
  });
  auto socket = std::make_shared<UniqueFd>(net::accept_from(listener_.get()));
  if (!*socket) return;
  if (workers_.size() >= kMostConnections) {
    orders::reset_when_closed(socket->get());
    return options_.failed(fmt::format(
        "{} connections are open already, the most that there can be; one more was refused", kMostConnections));
  }
  auto done = std::make_shared<std::atomic<bool>>(false);
  workers_.push_back({done, start_thread("a forwarded connection", [this, socket, done] {
                        serve(*socket);
                        *done = true;
                      })});
}

void PortForward::serve(const UniqueFd& socket) const {
  try {
    Session session(options_.session);
    const auto tunnel = session.tunnel(path(), query(), kProtocol);
    const std::string why = pass_on(*tunnel, socket, stop_.fd());
    if (!why.empty()) options_.failed(why);
  } catch (const Error& error) {
    orders::reset_when_closed(socket.get());
    options_.failed(error.what());
  }
}

}  // namespace gyre::jobs::client
