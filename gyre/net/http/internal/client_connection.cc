#include "gyre/net/http/internal/client_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "gyre/base/account.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"

namespace gyre::net::http::internal {
namespace {

constexpr std::size_t kReadAtOnce = 65'536;
/// How often `meanwhile` is called.
constexpr int kTickMs = 100;

[[noreturn]] void throw_failed(int failure) {
  if (failure == EPIPE || failure == ECONNRESET || failure == ETIMEDOUT) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("the server is gone: {}", system_error("connection", failure).what()));
  }
  throw system_error("a connection to the server", failure);
}

}  // namespace

ClientConnection::ClientConnection(const ClientOptions& options)
    : socket_(connect_to(options.endpoint, Deadline::after(options.connect), options.meanwhile)),
      meanwhile_(options.meanwhile) {
  if (options.token.empty() || leaves_host(socket_.get())) return;
  // Whoever listens at a name in a folder for everybody may have taken it.
  const uid_t server = peer_credentials(socket_.get()).user;
  if (server == 0 || server == ::geteuid() || server == options.server_account) return;
  throw Error(
      ErrorCode::kAuthentication,
      fmt::format("the server at {} belongs to account '{}', and the token is for another one's; it was not sent",
                  to_string(options.endpoint), name_of_account(server)));
}

bool ClientConnection::usable() const {
  char byte = 0;
  const ssize_t count = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void ClientConnection::wait(short events, Deadline deadline) {
  for (;;) {
    meanwhile_();
    pollfd entry{socket_.get(), events, 0};
    const int count = ::poll(&entry, 1, deadline.poll_timeout_ms(kTickMs));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw system_error("poll", errno);
    if (deadline.passed()) throw Error(ErrorCode::kTimeout, "the server does not answer");
  }
}

void ClientConnection::write(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLOUT, deadline);
    } else if (errno != EINTR) {
      throw_failed(errno);
    }
  }
}

bool ClientConnection::read(std::string& buffer, Deadline deadline) {
  for (;;) {
    const std::size_t before = buffer.size();
    buffer.resize(before + kReadAtOnce);
    const ssize_t count = ::recv(socket_.get(), buffer.data() + before, kReadAtOnce, 0);
    const int failure = errno;
    buffer.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
    if (count > 0) return true;
    if (count == 0) return false;
    if (failure == EAGAIN || failure == EWOULDBLOCK) {
      wait(POLLIN, deadline);
    } else if (failure != EINTR) {
      throw_failed(failure);
    }
  }
}

}  // namespace gyre::net::http::internal
