#include "gyre/launch/internal/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "gyre/base/launch_contract.h"
#include "gyre/base/random.h"
#include "gyre/launch/internal/device_masks.h"

namespace gyre::launch {

namespace {

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

/// Parameter servers run no script, so torchrun's and horovodrun's variables do not count them. Workers are the first
/// ranks of the job and of each host.
int worker_count(const JobEnvironment& job) { return job.size - job.servers; }
int local_worker_count(const JobEnvironment& job) {
  return static_cast<int>(std::ranges::count_if(job.ranks, [&](int rank) { return rank < worker_count(job); }));
}

/// What torchrun sets, so that its scripts run unchanged.
void set_torchrun_variables(std::vector<std::string>& environment, const JobEnvironment& job, int local_rank) {
  const int rank = job.ranks[static_cast<std::size_t>(local_rank)];
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, std::string>>{
           {"RANK", std::to_string(rank)},
           {"WORLD_SIZE", std::to_string(worker_count(job))},
           {"LOCAL_RANK", std::to_string(local_rank)},
           {"LOCAL_WORLD_SIZE", std::to_string(local_worker_count(job))},
           {"GROUP_RANK", std::to_string(job.node)},
           {"GROUP_WORLD_SIZE", std::to_string(job.nodes)},
           {"ROLE_RANK", std::to_string(job.index_in_role.value_or(rank))},
           {"ROLE_WORLD_SIZE", std::to_string(job.role_size.value_or(worker_count(job)))},
           {"ROLE_NAME", job.role},
           {"MASTER_ADDR", job.master_address},
           {"MASTER_PORT", std::to_string(job.master_port)},
           {"TORCHELASTIC_RUN_ID", job.run_id},
           {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.restarts)},
           {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
           // torch's store is rank 0's, not the launcher's.
           {"TORCHELASTIC_USE_AGENT_STORE", "False"},
       }) {
    set_variable(environment, name, value);
  }
}

/// What horovodrun sets, for scripts that read their place before they import anything.
void set_horovodrun_variables(std::vector<std::string>& environment, const JobEnvironment& job, int local_rank) {
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, int>>{
           {"HOROVOD_RANK", job.ranks[static_cast<std::size_t>(local_rank)]},
           {"HOROVOD_SIZE", worker_count(job)},
           {"HOROVOD_LOCAL_RANK", local_rank},
           {"HOROVOD_LOCAL_SIZE", local_worker_count(job)},
           {"HOROVOD_CROSS_RANK", job.node},
           {"HOROVOD_CROSS_SIZE", job.nodes},
       }) {
    set_variable(environment, name, std::to_string(value));
  }
}

bool is_set(const std::vector<std::string>& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return name_of(entry) == name; });
}

bool has_value(const std::vector<std::string>& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(), [&](const std::string& entry) {
    return name_of(entry) == name && entry.size() > name.size() + 1;
  });
}

}  // namespace

void set_variable(std::vector<std::string>& environment, std::string_view name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return name_of(entry) == name; });
  environment.push_back(fmt::format("{}={}", name, value));
}

int threads_per_rank(int cores, int ranks) { return std::max(1, cores / ranks); }

std::string make_job_marker() {
  std::array<std::byte, 16> nonce;
  fill_with_secure_random(nonce);
  std::string marker = fmt::format("{}=", launch_contract::kMarker);
  for (const std::byte byte : nonce) marker += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return marker;
}

std::vector<std::string> rank_environment(const JobEnvironment& job, int local_rank) {
  const int rank = job.ranks[static_cast<std::size_t>(local_rank)];
  const auto local_size = static_cast<int>(job.ranks.size());
  constexpr std::array<std::string_view, 12> kOurs = {launch_contract::kRank,
                                                      launch_contract::kSize,
                                                      launch_contract::kServers,
                                                      launch_contract::kLocalRank,
                                                      launch_contract::kLocalSize,
                                                      launch_contract::kRendezvous,
                                                      launch_contract::kRendezvousDescriptor,
                                                      launch_contract::kKeyDescriptor,
                                                      launch_contract::kFailureDescriptor,
                                                      launch_contract::kEndedDescriptor,
                                                      launch_contract::kMetricsDescriptor,
                                                      launch_contract::kMarker};
  std::vector<std::string> environment = job.inherited;
  std::erase_if(environment, [&](const std::string& entry) {
    return std::find(kOurs.begin(), kOurs.end(), name_of(entry)) != kOurs.end();
  });
  // A torchrun outside; under one that a rank starts, it says whose the other variables of torchrun are.
  std::erase_if(environment, [](const std::string& entry) { return name_of(entry) == "TORCHELASTIC_ERROR_FILE"; });
  set_variable(environment, launch_contract::kRank, std::to_string(rank));
  set_variable(environment, launch_contract::kSize, std::to_string(job.size));
  if (job.servers > 0) set_variable(environment, launch_contract::kServers, std::to_string(job.servers));
  set_variable(environment, launch_contract::kLocalRank, std::to_string(local_rank));
  set_variable(environment, launch_contract::kLocalSize, std::to_string(local_size));
  set_variable(environment, launch_contract::kRendezvous, job.rendezvous);
  const int rendezvous_rank = job.servers > 0 ? job.size - job.servers : 0;
  if (rank == rendezvous_rank && job.rendezvous_fd >= 0) {
    set_variable(environment, launch_contract::kRendezvousDescriptor, std::to_string(job.rendezvous_fd));
  }
  if (job.failure_fd >= 0)
    set_variable(environment, launch_contract::kFailureDescriptor, std::to_string(job.failure_fd));
  if (job.key_fd >= 0) set_variable(environment, launch_contract::kKeyDescriptor, std::to_string(job.key_fd));
  if (job.ended_fd >= 0) set_variable(environment, launch_contract::kEndedDescriptor, std::to_string(job.ended_fd));
  if (!job.marker.empty()) environment.push_back(job.marker);
  set_torchrun_variables(environment, job, local_rank);
  set_horovodrun_variables(environment, job, local_rank);
  if (local_rank < local_worker_count(job)) set_device_masks(environment, local_rank);
  if (job.timeline) set_variable(environment, "GYRE_TIMELINE", *job.timeline);
  if (job.log_level) set_variable(environment, "GYRE_LOG_LEVEL", *job.log_level);
  // Into a pipe Python would write 8 KB at a time, and a rank that is killed would take its last lines along.
  if (!is_set(environment, "PYTHONUNBUFFERED")) set_variable(environment, "PYTHONUNBUFFERED", "1");
  if (!has_value(environment, "OMP_NUM_THREADS")) {
    set_variable(environment, "OMP_NUM_THREADS",
                 std::to_string(threads_per_rank(job.cores, std::max(1, local_worker_count(job)))));
  }
  return environment;
}

}  // namespace gyre::launch
