#include "gyre/group/internal/links/addresses.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>

#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/base/random.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

std::string random_name() {
  std::array<std::byte, 8> random;
  fill_with_secure_random(random);
  std::string name = "@gyre-link-";
  for (const std::byte value : random) name += fmt::format("{:02x}", std::to_integer<int>(value));
  return name;
}

/// All addresses of this host: IPv6's wildcard serves both families, where there is IPv6.
UniqueFd listen_everywhere(std::uint16_t port) {
  try {
    return net::listen_on({net::Endpoint::Kind::kTcp, "::", port});
  } catch (const Error&) {
    return net::listen_on({net::Endpoint::Kind::kTcp, "0.0.0.0", port});  // Reports what fails here too.
  }
}

/// The loopback by accident (a name that /etc/hosts maps there), not because the user said so.
bool is_accidental_loopback(const net::Endpoint& rendezvous, std::string_view address) {
  return is_loopback(address) && !is_loopback(rendezvous.host);
}

}  // namespace

bool is_loopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost" || host.starts_with("::ffff:127.");
}

bool is_only_local(std::string_view host) { return is_loopback(host) || host == "0.0.0.0" || host == "::"; }

UniqueFd duplicate(const UniqueFd& descriptor) {
  UniqueFd copy(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error("copying a descriptor", errno);
  close_in_forks(copy.get());
  return copy;
}

UniqueFd listen_for_members(const Job& job) {
  if (job.listener) {
    // The launcher's socket stays open for the next time this process joins.
    close_in_forks(job.listener->get());
    UniqueFd copy = duplicate(*job.listener);
    if (::fcntl(copy.get(), F_SETFL, O_NONBLOCK) != 0) throw system_error("O_NONBLOCK", errno);
    return copy;
  }
  if (job.rendezvous.kind == net::Endpoint::Kind::kTcp && !job.bind_address.empty()) {
    return net::listen_on({net::Endpoint::Kind::kTcp, job.bind_address, job.rendezvous.port});
  }
  UniqueFd socket = net::listen_on(job.rendezvous);
  if (job.rendezvous.kind == net::Endpoint::Kind::kUnix) return socket;
  if (!is_accidental_loopback(job.rendezvous, net::local_endpoint(socket.get()).host)) return socket;
  socket.reset();
  return listen_everywhere(job.rendezvous.port);
}

LinkListeners listen_for_links(const Job& job, int connection) {
  LinkListeners listeners;
  listeners.endpoints.push_back({net::Endpoint::Kind::kUnix, random_name(), 0});
  listeners.sockets.push_back(net::listen_on(listeners.endpoints.back()));
  if (job.rendezvous.kind == net::Endpoint::Kind::kUnix) return listeners;
  std::vector<std::string> addresses = job.link_addresses;
  if (addresses.empty() && !job.bind_address.empty()) addresses.push_back(job.bind_address);
  for (const std::string& address : addresses) {
    listeners.sockets.push_back(net::listen_on({net::Endpoint::Kind::kTcp, address, 0}));
    listeners.endpoints.push_back(net::local_endpoint(listeners.sockets.back().get()));
  }
  if (!addresses.empty()) return listeners;
  const std::string address = net::local_endpoint(connection).host;
  UniqueFd socket = is_accidental_loopback(job.rendezvous, address)
                        ? listen_everywhere(0)
                        : net::listen_on({net::Endpoint::Kind::kTcp, address, 0});
  const std::uint16_t port = net::local_endpoint(socket.get()).port;
  listeners.endpoints.push_back({net::Endpoint::Kind::kTcp, address, port});
  listeners.sockets.push_back(std::move(socket));
  return listeners;
}

}  // namespace gyre::group
