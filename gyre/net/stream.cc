#include "gyre/net/stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"

namespace gyre::net {
namespace {

class SocketStream final : public Stream {
 public:
  SocketStream(UniqueFd socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  std::size_t read_some(std::span<std::byte> into) override {
    if (into.empty()) return 0;
    for (;;) {
      const ssize_t count = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
      if (count > 0) return static_cast<std::size_t>(count);
      if (count == 0) throw Error(ErrorCode::kPeerLost, fmt::format("{} closed the connection", peer_));
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      throw_lost("reading from");
    }
  }

  std::size_t write_some(std::span<const std::byte> from) override {
    if (from.empty()) return 0;
    for (;;) {
      const ssize_t count = ::send(socket_.get(), from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      throw_lost("writing to");
    }
  }

  int fd() const override { return socket_.get(); }
  const std::string& peer() const override { return peer_; }

 private:
  [[noreturn]] void throw_lost(std::string_view what) const {
    throw Error(ErrorCode::kPeerLost, system_error(fmt::format("{} {}", what, peer_), errno).what());
  }

  UniqueFd socket_;
  std::string peer_;
};

}  // namespace

std::unique_ptr<Stream> make_socket_stream(UniqueFd socket, std::string peer) {
  return std::make_unique<SocketStream>(std::move(socket), std::move(peer));
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
  while (!into.empty()) {
    const std::size_t count = stream.read_some(into);
    into = into.subspan(count);
    if (count == 0) wait_for(stream.fd(), POLLIN, deadline, stream.peer());
  }
}

void write_exactly(Stream& stream, std::span<const std::byte> from, Deadline deadline) {
  while (!from.empty()) {
    const std::size_t count = stream.write_some(from);
    from = from.subspan(count);
    if (count == 0) wait_for(stream.fd(), POLLOUT, deadline, stream.peer());
  }
}

}  // namespace gyre::net
