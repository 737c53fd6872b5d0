#pragma once

#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/job_key.h"

namespace gyre::group {

// How ranks of one host agree on a key when their launcher gave them none: rank 0 hands it to processes of the same
// user, and only to them; the kernel vouches for the user on both sides of a unix socket (SO_PEERCRED).
// On the wire: the rank (4 bytes, little-endian), then the key (32 bytes).

/// The abstract names at which the ranks of the job `name` may meet, in the order in which they try them. Any local
/// user can predict and bind them, so the ranks pass over those that another user holds.
std::vector<net::Endpoint> local_meeting_places(const std::string& name);

/// Rank 0: a socket that listens at the first place that no other user holds. Error(kAuthentication) names the user and
/// the process that hold all of them; Error(kIo) when a process of this user is there already.
UniqueFd listen_for_local_ranks(const std::vector<net::Endpoint>& places);

/// Serves until each of the ranks 1 … size-1 has the key. Error(kTimeout) names those that did not come.
void hand_out_local_key(const UniqueFd& listening_socket, int size, const net::JobKey& key, Deadline deadline);

/// Looks for rank 0 at `places`, until `give_up`, but once in any case; then waits for the key until `deadline`.
/// Error(kAuthentication) at once when other users hold all of them.
net::JobKey fetch_local_key(const std::vector<net::Endpoint>& places, int rank, Deadline give_up, Deadline deadline);

}  // namespace gyre::group
