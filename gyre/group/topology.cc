#include "gyre/group/topology.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <map>

#include "gyre/base/boot.h"
#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"

namespace gyre::group {

Topology::Topology(std::vector<Member> members, int own_rank) : members_(std::move(members)), rank_(own_rank) {
  GYRE_CHECK(own_rank >= 0);
  GYRE_CHECK(own_rank < size());
  std::map<std::string, std::size_t> index_of_host;
  for (int rank = 0; rank < size(); ++rank) {
    GYRE_CHECK(member(rank).rank == rank);
    const auto [entry, is_new] = index_of_host.try_emplace(member(rank).host_id, hosts_.size());
    if (is_new) hosts_.emplace_back();
    std::vector<int>& ranks = hosts_[entry->second];
    if (rank == rank_) {
      host_index_ = static_cast<int>(entry->second);
      local_rank_ = static_cast<int>(ranks.size());
    }
    ranks.push_back(rank);
  }
}

const Member& Topology::member(int rank) const {
  GYRE_CHECK(rank >= 0);
  GYRE_CHECK(rank < size());
  return members_[static_cast<std::size_t>(rank)];
}

std::string Topology::describe(int rank) const {
  const Member& who = member(rank);
  return fmt::format("rank {} (host {}, pid {})", who.rank_in_job.value_or(rank), who.host_name, who.process);
}

namespace {

constexpr std::string_view kUnknownHost = "unknown/";

/// A number of this process's network namespace that no other one has had since the system was started; where the
/// kernel does not tell it (before 5.14), one that no other one has at the same time. 0: unknown. The kernel alone
/// decides which of the two it is: processes with and without /proc must come to the same answer.
std::uint64_t network_namespace() {
#ifdef SO_NETNS_COOKIE
  constexpr int kOption = SO_NETNS_COOKIE;
#else
  constexpr int kOption = 71;
#endif
  const UniqueFd any(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  if (any && ::getsockopt(any.get(), SOL_SOCKET, kOption, &cookie, &length) == 0) return cookie;
  struct stat network{};
  return ::stat("/proc/self/ns/net", &network) == 0 ? network.st_ino : 0;
}

std::string boot_id_if_known() {
  try {
    return boot_id();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string this_host_id() {
  // Abstract unix sockets, over which descriptors of shared memory travel, reach as far as the network namespace:
  // not into another container or a test's play-host. The user does not matter to them.
  const std::string boot = boot_id_if_known();
  const std::uint64_t network = network_namespace();
  if (!boot.empty() && network != 0) return fmt::format("{}/{}", boot, network);
  std::array<std::byte, 16> random;
  fill_with_secure_random(random);
  std::string id(kUnknownHost);
  for (const std::byte value : random) id += fmt::format("{:02x}", std::to_integer<int>(value));
  return id;
}

bool is_unknown_host(std::string_view host_id) { return host_id.starts_with(kUnknownHost); }

std::uint64_t this_process_namespace() {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::string this_host_name() {
  utsname names{};
  if (::uname(&names) != 0) throw system_error("uname", errno);
  return names.nodename;
}

}  // namespace gyre::group
