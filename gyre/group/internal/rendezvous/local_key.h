#pragma once

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::group {

// How ranks of one host agree on a key when their launcher gave them none: rank 0 hands it to processes of the same
// user, and only to them; the kernel vouches for the user on both sides of a unix socket (SO_PEERCRED).
// On the wire: the rank (4 bytes, little-endian), then the key (32 bytes).

/// Serves until each of the ranks 1 … size-1 has the key. Error(kTimeout) names those that did not come.
void hand_out_local_key(const UniqueFd& listening_socket, int size, const net::JobKey& key, Deadline deadline);

/// Waits for rank 0. Error(kAuthentication) when another user listens there.
net::JobKey fetch_local_key(const net::Endpoint& endpoint, int rank, Deadline deadline);

}  // namespace gyre::group
