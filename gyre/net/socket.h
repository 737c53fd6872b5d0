#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"

namespace gyre::net {

/// A listening, non-blocking, close-on-exec socket. Errors name the endpoint.
UniqueFd listen_on(const Endpoint& endpoint, int backlog = 1024);

/// The endpoint a socket is bound to (tells the port that the system chose).
Endpoint local_endpoint(int fd);
/// The endpoint at the other end of a connection; a unix socket that was never bound has an empty name.
Endpoint peer_endpoint(int fd);

/// A connected, non-blocking, close-on-exec socket (TCP: no delay, keep-alive that finds a dead host
/// within about 10 s). All addresses of a host are tried, the families in turns, each 250 ms after the one before it,
/// and the first connection that stands wins (RFC 8305). While nobody listens there yet it tries again, with growing
/// pauses, until the deadline, which holds for look-ups too; Error(kTimeout) then says what the last try met.
/// `meanwhile` is called about ten times a second and may throw to give up earlier.
UniqueFd connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<void()>& meanwhile = [] {});

/// The next waiting connection of a listening socket, set up like connect_to's; empty when none waits.
UniqueFd accept_from(int listening_fd);

/// Lets a tcp connection fail when sent bytes stay unacknowledged for about 10 s (keep-alive only watches idle
/// connections). Only for connections whose other end always reads: the kernel counts a full receive window as
/// unacknowledged too, and a rank that computes for a minute without reading its link is not dead.
void limit_unacknowledged(int fd);

/// Whether what is written here may be read by others on the way: every connection but a unix socket's. A fact of this
/// host's kernel, and the same at both ends.
bool leaves_host(int fd);

/// User and process at the other end of a unix socket, as the kernel knows them (SO_PEERCRED).
struct PeerCredentials {
  uid_t user;
  pid_t process;
};
PeerCredentials peer_credentials(int fd);

/// Hands a descriptor over a unix socket; blocks until the deadline.
void send_descriptor(int socket_fd, int descriptor, Deadline deadline);
/// Error(kProtocol) where anything but one descriptor arrives, Error(kResourceExhausted) where this process cannot have
/// another one; both leave the connection at the next byte, and nothing open.
UniqueFd receive_descriptor(int socket_fd, Deadline deadline);

/// Waits until `fd` is readable (POLLIN) or writable (POLLOUT); Error(kTimeout) names `what`.
void wait_for(int fd, short events, Deadline deadline, std::string_view what);

}  // namespace gyre::net
