#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/jobs/agent/expansion.h"
#include "gyre/jobs/agent/node_job.h"
#include "gyre/jobs/agent/work_order.h"

namespace gyre::jobs::agent::internal {

/// Which MPI `mpirun` is, in that environment; as the job's user, because the preparation may have put it anywhere.
Mpi find_mpi(const Variables& environment, const std::optional<JobUser>& user);

/// What a file begins with, at most 64 KB, as that user may read it; empty where it is not a file that they can read.
/// `path`: from `folder` on.
std::string beginning_of_file(const std::string& path, const std::filesystem::path& folder,
                              const std::optional<JobUser>& user);

/// GPUs that a job here could use: those of CUDA_VISIBLE_DEVICES where an engine has set it, else the machine's.
int count_gpus(const Variables& environment);

/// Ports of one address of this host. Nobody who asks for any free port gets one of them while this object lives; a
/// process that asks for one by number does once release() has been called.
class PortLease {
 public:
  /// `count` free ports from 2222 upward, as Batch AI gave them. Error(kResourceExhausted) when there are none;
  /// Error(kInvalidArgument) when the address is not one of this host.
  PortLease(const std::string& address, int count);

  const std::vector<int>& ports() const { return ports_; }
  void release() { sockets_.clear(); }

 private:
  std::vector<int> ports_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace gyre::jobs::agent::internal
