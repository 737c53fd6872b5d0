#include "gyre/net/stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/net/socket.h"

namespace gyre::net {
namespace {

class SocketStream final : public Stream {
 public:
  SocketStream(UniqueFd socket, std::string peer)
      : socket_(std::move(socket)), fd_(socket_.get()), peer_(std::move(peer)) {
    close_in_forks(fd_);
  }
  SocketStream(int socket_fd, std::string peer) : fd_(socket_fd), peer_(std::move(peer)) {}

  int fd() const override { return fd_; }
  const std::string& peer() const override { return peer_; }

 protected:
  std::size_t receive_some(std::span<std::byte> into) override {
    if (into.empty()) return 0;
    for (;;) {
      const ssize_t count = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
      if (count > 0) return static_cast<std::size_t>(count);
      if (count == 0) throw Error(ErrorCode::kPeerLost, fmt::format("{} closed the connection", peer_));
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      throw_lost("reading from");
    }
  }

  std::size_t send_some(std::span<const std::byte> from) override {
    if (from.empty()) return 0;
    for (;;) {
      const ssize_t count = ::send(fd_, from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      throw_lost("writing to");
    }
  }

 private:
  [[noreturn]] void throw_lost(std::string_view what) const {
    throw Error(ErrorCode::kPeerLost, system_error(fmt::format("{} {}", what, peer_), errno).what());
  }

  UniqueFd socket_;  // Where this stream owns it.
  int fd_;
  std::string peer_;
};

}  // namespace

void Stream::FirstFailure::set(const Error& cause) {
  auto copy = std::make_unique<const Error>(cause);
  const Error* none = nullptr;
  if (cause_.compare_exchange_strong(none, copy.get(), std::memory_order_acq_rel)) static_cast<void>(copy.release());
}

void Stream::FirstFailure::throw_if_set() const {
  const Error* cause = cause_.load(std::memory_order_acquire);
  if (cause != nullptr) throw Error(*cause);
}

Stream::~Stream() = default;

std::size_t Stream::read_some(std::span<std::byte> into) {
  read_failure_.throw_if_set();
  try {
    return receive_some(into);
  } catch (const std::exception& error) {
    fail(as_error(error));
    throw;
  }
}

std::size_t Stream::write_some(std::span<const std::byte> from) {
  write_failure_.throw_if_set();
  try {
    return send_some(from);
  } catch (const std::exception& error) {
    write_failure_.set(as_error(error));
    throw;
  }
}

void Stream::fail(const Error& cause) {
  read_failure_.set(cause);
  write_failure_.set(cause);
}

std::unique_ptr<Stream> make_socket_stream(UniqueFd socket, std::string peer) {
  return std::make_unique<SocketStream>(std::move(socket), std::move(peer));
}

std::unique_ptr<Stream> make_socket_stream_over(int socket_fd, std::string peer) {
  return std::make_unique<SocketStream>(socket_fd, std::move(peer));
}

std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_stream_pair(
    std::pair<std::string, std::string> peers) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw system_error("socketpair", errno);
  }
  UniqueFd first(ends[0]);
  UniqueFd second(ends[1]);
  return {make_socket_stream(std::move(first), std::move(peers.first)),
          make_socket_stream(std::move(second), std::move(peers.second))};
}

void read_exactly(Stream& stream, std::span<std::byte> into, Deadline deadline) {
  read_exactly(stream, into, [&](short events) { wait_for(stream.fd(), events, deadline, stream.peer()); });
}

void write_exactly(Stream& stream, std::span<const std::byte> from, Deadline deadline) {
  write_exactly(stream, from, [&](short events) { wait_for(stream.fd(), events, deadline, stream.peer()); });
}

}  // namespace gyre::net
