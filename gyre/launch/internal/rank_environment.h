#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::launch {

/// What every rank that one launcher starts is told.
struct JobEnvironment {
  std::vector<std::string> inherited;  ///< "NAME=VALUE".
  std::vector<int> ranks = {0};        ///< The numbers of this host's ranks in the job.
  int size = 1;                        ///< Of the job.
  int servers = 0;                     ///< Of the job's ranks, the last ones.
  int node = 0;
  int nodes = 1;
  std::string master_address;
  int master_port = 0;
  std::string run_id;
  std::string role = "default";
  std::optional<int> index_in_role;  ///< Unset: the rank.
  std::optional<int> role_size;      ///< Unset: the job's.
  int restarts = 0;
  int max_restarts = 0;
  std::string marker;  ///< "NAME=VALUE"; see make_job_marker().
  int cores = 1;
  std::string rendezvous;  ///< "unix:@NAME" or "tcp:HOST:PORT"
  int rendezvous_fd = -1;  ///< Negative: rank 0 listens by itself.
  int key_fd = -1;         ///< Negative: the ranks have a file.
  int ended_fd = -1;
  int failure_fd = -1;
  std::optional<std::string> timeline;
  std::optional<std::string> log_level;
};

/// The environment of one rank (`local_rank`, from 0, is its number on this host): `inherited` without the variables of
/// a launcher above us, plus ours and those that torchrun sets. OMP_NUM_THREADS is the rank's share of the cores unless
/// the user has set it, and PYTHONUNBUFFERED is 1 unless the user has set it, to nothing even. Devices are masked as
/// set_device_masks() says, whose error it throws. Pure but for the GPUs that this one counts.
std::vector<std::string> rank_environment(const JobEnvironment& job, int local_rank);

/// Puts NAME=VALUE in the place of what `environment` says of `name`.
void set_variable(std::vector<std::string>& environment, std::string_view name, const std::string& value);

/// The share: max(1, cores / ranks).
int threads_per_rank(int cores, int ranks);

/// An entry that marks every process that this launcher starts, for as long as it keeps its environment: a random
/// "GYRE_LAUNCH=…".
std::string make_job_marker();

}  // namespace gyre::launch
