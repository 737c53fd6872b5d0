#include "gyre/jobs/internal/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace gyre::jobs {

namespace {

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

void set_variable(std::vector<std::string>& environment, std::string_view name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return name_of(entry) == name; });
  environment.push_back(fmt::format("{}={}", name, value));
}

bool has_value(const std::vector<std::string>& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(), [&](const std::string& entry) {
    return name_of(entry) == name && entry.size() > name.size() + 1;
  });
}

}  // namespace

int threads_per_rank(int cores, int ranks) { return std::max(1, cores / ranks); }

std::string job_marker(const std::string& rendezvous) { return "GYRE_RENDEZVOUS=" + rendezvous; }

std::vector<std::string> rank_environment(const JobEnvironment& job, int rank) {
  constexpr std::array<std::string_view, 8> kOurs = {"GYRE_RANK",       "GYRE_SIZE",       "GYRE_LOCAL_RANK",
                                                     "GYRE_LOCAL_SIZE", "GYRE_RENDEZVOUS", "GYRE_RENDEZVOUS_FD",
                                                     "GYRE_KEY_FD",     "GYRE_VERDICT_FD"};
  std::vector<std::string> environment = job.inherited;
  std::erase_if(environment, [&](const std::string& entry) {
    return std::find(kOurs.begin(), kOurs.end(), name_of(entry)) != kOurs.end();
  });
  set_variable(environment, "GYRE_RANK", std::to_string(rank));
  set_variable(environment, "GYRE_SIZE", std::to_string(job.ranks));
  set_variable(environment, "GYRE_LOCAL_RANK", std::to_string(rank));
  set_variable(environment, "GYRE_LOCAL_SIZE", std::to_string(job.ranks));
  set_variable(environment, "GYRE_RENDEZVOUS", job.rendezvous);
  if (rank == 0) {
    set_variable(environment, "GYRE_RENDEZVOUS_FD", std::to_string(job.rendezvous_fd));
    set_variable(environment, "GYRE_VERDICT_FD", std::to_string(job.verdict_fd));
  }
  set_variable(environment, "GYRE_KEY_FD", std::to_string(job.key_fd));
  if (job.timeline) set_variable(environment, "GYRE_TIMELINE", *job.timeline);
  if (job.log_level) set_variable(environment, "GYRE_LOG_LEVEL", *job.log_level);
  if (!has_value(environment, "OMP_NUM_THREADS")) {
    set_variable(environment, "OMP_NUM_THREADS", std::to_string(threads_per_rank(job.cores, job.ranks)));
  }
  return environment;
}

}  // namespace gyre::jobs
