#pragma once

#include <string>

#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"

namespace gyre::net::http::internal {

/// A listening socket for the users of this host: on a loopback address (any, where what is sent is encrypted), or a
/// unix socket that only this process's user can open from its first moment on. A socket file that a dead server left
/// is replaced; Error(kInvalidArgument) when a living one listens there, when the file is something else, or for an
/// address beyond this host.
UniqueFd listen_privately(const Endpoint& endpoint, mode_t mode = 0600, bool encrypted = false);

/// Whether the process at the other end of a unix socket without a file is of this user, or root. True on other
/// sockets.
bool may_connect(int socket);

}  // namespace gyre::net::http::internal
