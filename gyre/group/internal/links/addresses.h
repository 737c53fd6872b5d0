#pragma once

#include <string_view>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/group/job.h"
#include "gyre/net/endpoint.h"

namespace gyre::group {

/// "127.…", "::1" and "localhost".
bool is_loopback(std::string_view host);

/// A loopback or "all addresses of this host": nothing that another host could connect to.
bool is_only_local(std::string_view host);

UniqueFd duplicate(const UniqueFd& descriptor);

/// Where rank 0 listens for the job's ranks: what the launcher made, else the rendezvous itself. A host name that
/// means only the loopback on its own host (Debian's 127.0.1.1) is widened to all addresses.
UniqueFd listen_for_members(const Job& job);

/// Where this rank accepts links: a unix socket for its own host and, when the job may span several hosts, a tcp socket
/// on each of the job's link addresses, or, when it has none, on its bind address, or else on the interface that leads
/// to the rendezvous.
struct LinkListeners {
  std::vector<UniqueFd> sockets;
  std::vector<net::Endpoint> endpoints;  ///< One per socket; unix first.
};

/// `connection`: a socket of this rank whose local address is on that interface.
LinkListeners listen_for_links(const Job& job, int connection);

}  // namespace gyre::group
