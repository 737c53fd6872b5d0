#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/net/endpoint.h"

namespace gyre::group {

/// What every rank knows of every other one.
struct Member {
  int rank = 0;
  std::optional<int> rank_in_job;  ///< Where ranks are renumbered (subgroup.h): the number that people know.
  std::string host_id;             ///< Equal exactly for ranks that can share memory.
  std::string host_name;           ///< For people.
  pid_t process = 0;
  std::uint64_t process_namespace = 0;   ///< `process` means something only within it; 0: unknown.
  std::vector<net::Endpoint> endpoints;  ///< Where it accepts links; unix first where it has one.
};

/// Which ranks share a host. Immutable; every rank of a group computes the same one.
class Topology {
 public:
  /// `members` in the order of their ranks.
  Topology(std::vector<Member> members, int own_rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const Member& member(int rank) const;
  const Member& self() const { return member(rank_); }

  /// Ranks of this host, ascending, this rank included; local_rank() is its position there.
  const std::vector<int>& local_ranks() const { return hosts_[static_cast<std::size_t>(host_index_)]; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return static_cast<int>(local_ranks().size()); }

  /// Hosts in the order of their lowest rank, each with its ranks ascending.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }
  int host_index() const { return host_index_; }
  bool one_host() const { return hosts_.size() == 1; }

  /// "rank 3 (host node7, pid 4711)"; the rank is named by its number in the job.
  std::string describe(int rank) const;

 private:
  std::vector<Member> members_;
  int rank_;
  int local_rank_ = 0;
  int host_index_ = 0;
  std::vector<std::vector<int>> hosts_;
};

/// Equal for two processes exactly when they can share memory: same boot, same network namespace. A process that cannot
/// find out (a container without /proc) gets one that no other has: it is a host of its own.
std::string this_host_id();
bool is_unknown_host(std::string_view host_id);
std::string this_host_name();
std::uint64_t this_process_namespace();

}  // namespace gyre::group
