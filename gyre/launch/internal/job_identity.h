#pragma once

#include <string>

#include "gyre/base/file.h"
#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// What makes the ranks of one job one job. All descriptors are close-on-exec; whoever spawns a rank hands them over.
struct JobIdentity {
  std::string rendezvous;  ///< "unix:@gyre-<random>"
  UniqueFd rendezvous_fd;  ///< Listening socket bound to it, for rank 0.
  UniqueFd key_fd;         ///< Sealed memfd with the 32 bytes of the job's key, for every rank.
  UniqueFd failure_fd;     ///< The ranks write there, as lines, what may have been the cause of a failure …
  UniqueFd failures;       ///< … and we read it here, without waiting. See parse_report().
};

/// A new one; `ranks` is how many may connect at once. Error(kIo, …) when the system refuses.
JobIdentity make_job_identity(int ranks);

/// This host's part of one that exists: no socket, and no descriptor for the key where the ranks have a file.
JobIdentity join_job_identity(const HostPart& part);

}  // namespace gyre::launch
