#include "gyre/net/http/internal/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gyre/base/error.h"
#include "gyre/net/network.h"
#include "gyre/net/socket.h"

namespace gyre::net::http::internal {
namespace {

constexpr int kBacklog = 1'024;

sockaddr_un address_of(const Endpoint& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.host.size() >= sizeof(address.sun_path)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cannot listen on {}: the path of a unix socket has at most {} bytes", to_string(endpoint),
                            sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, endpoint.host.data(), endpoint.host.size());
  return address;
}

UniqueFd unix_socket(const Endpoint& endpoint) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw system_error(fmt::format("cannot listen on {}", to_string(endpoint)), errno);
  return socket;
}

/// Removes the socket of a server that is gone.
void remove_dead_socket(const Endpoint& endpoint, const sockaddr_un& address) {
  struct stat status{};
  if (::lstat(address.sun_path, &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cannot listen on {}: there is a file of another kind", to_string(endpoint)));
  }
  const UniqueFd probe = unix_socket(endpoint);
  const int result = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (result != 0 && errno == ECONNREFUSED) {
    ::unlink(address.sun_path);
    return;
  }
  throw Error(ErrorCode::kIo, fmt::format("cannot listen on {}: another server listens there", to_string(endpoint)));
}

UniqueFd listen_on_path(const Endpoint& endpoint, mode_t mode) {
  const sockaddr_un address = address_of(endpoint);
  remove_dead_socket(endpoint, address);
  UniqueFd socket = unix_socket(endpoint);
  // On Linux bind() gives the file the mode of the socket, so nobody else can open it, not even for a moment. The umask
  // takes from it what others are to have.
  if (::fchmod(socket.get(), mode) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0 || ::chmod(address.sun_path, mode) != 0) {
    throw system_error(fmt::format("cannot listen on {}", to_string(endpoint)), errno);
  }
  return socket;
}

bool is_loopback(const std::string& address) {
  return Network("127.0.0.0/8").contains(address) || Network("::1").contains(address);
}

}  // namespace

UniqueFd listen_privately(const Endpoint& endpoint, mode_t mode, bool encrypted) {
  if (endpoint.kind == Endpoint::Kind::kUnix && !endpoint.host.starts_with('@')) return listen_on_path(endpoint, mode);
  UniqueFd socket = listen_on(endpoint, kBacklog);
  if (endpoint.kind == Endpoint::Kind::kTcp && !encrypted && !is_loopback(local_endpoint(socket.get()).host)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cannot listen on {}: tokens would cross the network in the clear; use 127.0.0.1, ::1 or a "
                            "unix socket, and ssh -L from other hosts",
                            to_string(endpoint)));
  }
  return socket;
}

bool may_connect(int socket) {
  if (leaves_host(socket)) return true;
  const Endpoint local = local_endpoint(socket);
  if (!local.host.starts_with('@')) return true;
  const uid_t user = peer_credentials(socket).user;
  return user == ::geteuid() || user == 0;
}

}  // namespace gyre::net::http::internal
