#include "gyre/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/net/internal/address.h"

namespace gyre::net {
namespace {

/// Sent data that nobody acknowledges for this long means a dead host: idle + probes, like keep-alive.
constexpr int kUnacknowledgedMs = 11'000;
/// Of the name of this host, as a rule.
constexpr std::chrono::seconds kLongestLookUp{30};

/// The one descriptor that a message has brought. It is owned before anything is checked, so that none is leaked.
UniqueFd descriptor_in(msghdr& message) {
  UniqueFd received;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  const bool is_one = header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
                      header->cmsg_len == CMSG_LEN(sizeof(int));
  if (is_one) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    received = UniqueFd(descriptor);
  }
  const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  if (is_one && !truncated) return received;
  if (is_one) throw Error(ErrorCode::kProtocol, "several descriptors arrived where one was expected");
  if (truncated) {
    throw Error(ErrorCode::kResourceExhausted,
                "a descriptor was sent, but the system could not install it: this process may have no more open files "
                "(ulimit -n)");
  }
  throw Error(ErrorCode::kProtocol, "a byte arrived where a descriptor was expected");
}

}  // namespace

using internal::Address;
using internal::Resolution;

UniqueFd listen_on(const Endpoint& endpoint, int backlog) {
  const Resolution resolution = internal::resolve(endpoint, Deadline::after(kLongestLookUp));
  if (resolution.addresses.empty()) throw internal::unknown_host(endpoint, resolution.failure);
  const Address& address = resolution.addresses.front();
  UniqueFd fd = internal::make_socket(address.family());
  if (address.family() != AF_UNIX) internal::set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), backlog) != 0) {
    throw system_error(fmt::format("cannot listen on {}", to_string(endpoint)), errno);
  }
  return fd;
}

Endpoint local_endpoint(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  if (::getsockname(fd, address.get(), &address.length) != 0) throw system_error("getsockname", errno);
  return internal::endpoint_of(address);
}

Endpoint peer_endpoint(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  if (::getpeername(fd, address.get(), &address.length) != 0) throw system_error("getpeername", errno);
  return internal::endpoint_of(address);
}

UniqueFd accept_from(int listening_fd) {
  for (;;) {
    Address address;
    address.length = sizeof(address.storage);
    UniqueFd fd(::accept4(listening_fd, address.get(), &address.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      close_in_forks(fd.get());
      internal::set_up_connection(fd.get(), address.family());
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
  internal::set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs, "TCP_USER_TIMEOUT");
}

bool leaves_host(int fd) {
  int family = AF_UNSPEC;
  socklen_t length = sizeof(family);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) throw system_error("SO_DOMAIN", errno);
  return family != AF_UNIX;
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
    // Not sizeof(control): alignment leaves room for a second descriptor there, which the kernel would install.
    message.msg_controllen = CMSG_LEN(sizeof(int));
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
    return descriptor_in(message);
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
