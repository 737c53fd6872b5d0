#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gyre/group/group.h"
#include "gyre/group/job.h"

namespace gyre::group {

/// One Job per rank, all with one random key and a rendezvous whose listener exists already, as `gyre run` would make
/// them. `rendezvous`: "unix:@NAME" (made unique) or "tcp:HOST:0".
std::vector<Job> make_jobs(int size, const std::string& rendezvous);

/// Runs `body` on one thread per rank, each with a group that it joins over sockets. The first exception aborts the
/// group and is thrown to the caller with its rank in front.
void run_over_sockets(int size, const std::function<void(Group&)>& body, const std::vector<std::string>& host_ids,
                      const std::string& rendezvous);

/// The same over jobs of the caller's making.
void run_jobs(const std::vector<Job>& jobs, const std::function<void(Group&)>& body,
              const std::vector<std::string>& host_ids = {}, const GroupOptions& options = {});

}  // namespace gyre::group
