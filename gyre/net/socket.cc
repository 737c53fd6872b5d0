#include "gyre/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 2;
constexpr int kKeepAliveProbes = 3;
/// Sent data that nobody acknowledges for this long means a dead host: idle + probes, like keep-alive.
constexpr int kUnacknowledgedMs = 11'000;
constexpr int kFirstRetryPauseMs = 2;
constexpr int kLongestRetryPauseMs = 100;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address unix_address(const std::string& name) {
  Address address;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  un->sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof(un->sun_path)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is empty or too long for a unix socket", name));
  }
  std::memcpy(un->sun_path, name.data(), name.size());
  const bool abstract = name[0] == '@';
  if (abstract) un->sun_path[0] = '\0';
  // An abstract name is exactly as long as it says; a path ends with its zero.
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  return address;
}

struct Resolution {
  std::vector<Address> addresses;
  int failure = 0;  ///< Of getaddrinfo.
};

Resolution resolve(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kUnix) return {{unix_address(endpoint.host)}, 0};
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failure = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (failure != 0) return {{}, failure};
  Resolution result;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    result.addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  return result;
}

Error unknown_host(const Endpoint& endpoint, int failure) {
  return {ErrorCode::kNotFound, fmt::format("{}: the host name cannot be resolved: {}", to_string(endpoint),
                                            failure == 0 ? "no address" : ::gai_strerror(failure))};
}

UniqueFd make_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw system_error("socket", errno);
  return fd;
}

void set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof(value)) != 0) throw system_error(what, errno);
}

void set_up_connection(int fd, int family) {
  if (family == AF_UNIX) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds, "TCP_KEEPIDLE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds, "TCP_KEEPINTVL");
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes, "TCP_KEEPCNT");
}

/// One try; the errno it met, or 0 and the socket.
int try_connect(const Address& address, Deadline deadline, const std::string& name, UniqueFd& connected) {
  UniqueFd fd = make_socket(address.family());
  int failure = ::connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (failure == EINPROGRESS || failure == EINTR) {
    wait_for(fd.get(), POLLOUT, deadline, fmt::format("a connection to {}", name));
    socklen_t length = sizeof(failure);
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) failure = errno;
  }
  if (failure == 0) {
    set_up_connection(fd.get(), address.family());
    connected = std::move(fd);
  }
  return failure;
}

/// Nobody listens yet, or the host is just starting: worth another try.
bool may_pass(int failure) {
  // EAGAIN: a unix socket's queue of waiting connections is full.
  return failure == ECONNREFUSED || failure == ENOENT || failure == EAGAIN || failure == ECONNRESET ||
         failure == EHOSTUNREACH || failure == ENETUNREACH || failure == ETIMEDOUT || failure == EADDRNOTAVAIL;
}

Endpoint endpoint_of(const Address& address) {
  if (address.family() == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&address.storage);
    std::string name(un->sun_path, address.length - offsetof(sockaddr_un, sun_path));
    if (!name.empty() && name[0] == '\0') {
      name[0] = '@';
    } else {
      name.resize(std::strlen(name.c_str()));
    }
    return {Endpoint::Kind::kUnix, name, 0};
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int failure = ::getnameinfo(address.get(), address.length, host, sizeof(host), port, sizeof(port),
                                    NI_NUMERICHOST | NI_NUMERICSERV);
  if (failure != 0) {
    throw Error(ErrorCode::kIo, fmt::format("reading a socket's address: {}", ::gai_strerror(failure)));
  }
  return {Endpoint::Kind::kTcp, host, static_cast<std::uint16_t>(std::stoi(port))};
}

void pause(int pause_ms, Deadline deadline) {
  ::poll(nullptr, 0, std::min(pause_ms, std::max(0, deadline.poll_timeout_ms(pause_ms))));
}

}  // namespace

UniqueFd listen_on(const Endpoint& endpoint, int backlog) {
  const Resolution resolution = resolve(endpoint);
  if (resolution.addresses.empty()) throw unknown_host(endpoint, resolution.failure);
  const Address& address = resolution.addresses.front();
  UniqueFd fd = make_socket(address.family());
  if (address.family() != AF_UNIX) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), backlog) != 0) {
    throw system_error(fmt::format("cannot listen on {}", to_string(endpoint)), errno);
  }
  return fd;
}

Endpoint local_endpoint(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  if (::getsockname(fd, address.get(), &address.length) != 0) throw system_error("getsockname", errno);
  return endpoint_of(address);
}

Endpoint peer_endpoint(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  if (::getpeername(fd, address.get(), &address.length) != 0) throw system_error("getpeername", errno);
  return endpoint_of(address);
}

UniqueFd connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<void()>& between_tries) {
  const std::string name = to_string(endpoint);
  int pause_ms = kFirstRetryPauseMs;
  for (;;) {
    const Resolution resolution = resolve(endpoint);
    // A name server may be slow to learn about a new host; a name that does not exist never will.
    if (resolution.addresses.empty() && resolution.failure != EAI_AGAIN) {
      throw unknown_host(endpoint, resolution.failure);
    }
    int failure = EAGAIN;
    for (const Address& address : resolution.addresses) {
      UniqueFd connected;
      failure = try_connect(address, deadline, name, connected);
      if (failure == 0) return connected;
      if (!may_pass(failure)) throw system_error(fmt::format("cannot connect to {}", name), failure);
    }
    if (deadline.passed()) {
      throw Error(
          ErrorCode::kTimeout,
          resolution.addresses.empty()
              ? unknown_host(endpoint, resolution.failure).what()
              : system_error(fmt::format("no connection to {} in time; the last try met", name), failure).what());
    }
    pause(pause_ms, deadline);
    pause_ms = std::min(2 * pause_ms, kLongestRetryPauseMs);
    between_tries();
  }
}

UniqueFd accept_from(int listening_fd) {
  for (;;) {
    Address address;
    address.length = sizeof(address.storage);
    UniqueFd fd(::accept4(listening_fd, address.get(), &address.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      set_up_connection(fd.get(), address.family());
      return fd;
    }
    // A connection that broke while it waited is not this socket's failure.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    throw system_error("accepting a connection", errno);
  }
}

void limit_unacknowledged(int fd) {
  if (local_endpoint(fd).kind == Endpoint::Kind::kUnix) return;
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs, "TCP_USER_TIMEOUT");
}

PeerCredentials peer_credentials(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) throw system_error("SO_PEERCRED", errno);
  return {credentials.uid, credentials.pid};
}

void send_descriptor(int socket_fd, int descriptor, Deadline deadline) {
  std::byte payload{1};
  iovec vector{&payload, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  for (;;) {
    if (::sendmsg(socket_fd, &message, MSG_NOSIGNAL) == 1) return;
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) {
      throw Error(ErrorCode::kPeerLost, "the receiver of a descriptor closed the connection");
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw system_error("sending a descriptor", errno);
    wait_for(socket_fd, POLLOUT, deadline, "the receiver of a descriptor");
  }
}

UniqueFd receive_descriptor(int socket_fd, Deadline deadline) {
  std::byte payload{};
  iovec vector{&payload, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  for (;;) {
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t count = ::recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for(socket_fd, POLLIN, deadline, "the sender of a descriptor");
      continue;
    }
    if (count == 0 || (count < 0 && errno == ECONNRESET)) {
      throw Error(ErrorCode::kPeerLost, "the sender of a descriptor closed the connection");
    }
    if (count < 0) throw system_error("receiving a descriptor", errno);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int))) {
      throw Error(ErrorCode::kProtocol, "a byte arrived where a descriptor was expected");
    }
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return UniqueFd(descriptor);
  }
}

void wait_for(int fd, short events, Deadline deadline, std::string_view what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw system_error("poll", errno);
    if (count == 0 && deadline.passed()) {
      throw Error(ErrorCode::kTimeout, fmt::format("waiting for {} took too long", what));
    }
  }
}

}  // namespace gyre::net
