#include "gyre/group/topology.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

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

std::string this_host_id() {
  constexpr std::uint64_t kLongestBootIdBytes = 256;
  const Bytes file = read_file("/proc/sys/kernel/random/boot_id", kLongestBootIdBytes);
  std::string boot(as_text(file));
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  // Abstract unix sockets, over which descriptors of shared memory travel, reach as far as the network namespace:
  // not into another container or a test's play-host. The user does not matter to them.
  struct stat network{};
  if (::stat("/proc/self/ns/net", &network) != 0) throw system_error("looking at /proc/self/ns/net", errno);
  return fmt::format("{}/{}", boot, network.st_ino);
}

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
