#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gyre::jobs {

/// What every rank of a job on one host is told.
struct JobEnvironment {
  std::vector<std::string> inherited;  ///< "NAME=VALUE".
  int ranks = 1;
  int cores = 1;
  std::string rendezvous;  ///< "unix:@NAME"
  int rendezvous_fd = -1;
  int key_fd = -1;
  int verdict_fd = -1;
  std::optional<std::string> timeline;
  std::optional<std::string> log_level;
};

/// The environment of one rank: `inherited` without the variables of a launcher above us, plus ours. OMP_NUM_THREADS
/// is the rank's share of the cores unless the user has set it. Pure.
std::vector<std::string> rank_environment(const JobEnvironment& job, int rank);

/// The share: max(1, cores / ranks).
int threads_per_rank(int cores, int ranks);

/// The entry that marks every process of this job, for as long as it keeps its environment: "GYRE_RENDEZVOUS=…".
std::string job_marker(const std::string& rendezvous);

}  // namespace gyre::jobs
