#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

// For the process of an attempt: both run programs, or open files, that the job has chosen.

/// Which MPI `mpirun` is, in that environment.
orders::Mpi find_mpi(const Variables& environment);

/// What a file begins with, at most 64 KB; empty where it is not a file that we can read. `path`: from `folder` on.
std::string beginning_of_file(const std::string& path, const std::filesystem::path& folder);

/// GPUs that a job here could use: those of CUDA_VISIBLE_DEVICES where an engine has set it, else the machine's.
int count_gpus(const Variables& environment);

/// Ports of one address of this host. Until release(), nobody gets one of them; from then on a process that asks for it
/// by number does. As long as this object lives, no other one in this network namespace, of whatever address, server or
/// account, has the same ports.
class PortLease {
 public:
  /// `count` free ports from 2222 upward, as Batch AI gave them.
  /// Error(kResourceExhausted) when there are none; Error(kInvalidArgument) when the address is not one of this host.
  PortLease(const std::string& address, int count);

  const std::vector<int>& ports() const { return ports_; }
  void release() { sockets_.clear(); }

 private:
  std::vector<int> ports_;
  std::vector<UniqueFd> sockets_;  ///< Bound, until release().
  std::vector<UniqueFd> claims_;
};

}  // namespace gyre::jobs::node::internal
