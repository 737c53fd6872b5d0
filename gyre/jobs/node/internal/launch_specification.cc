#include "gyre/jobs/node/internal/launch_specification.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "gyre/base/launch_contract.h"

namespace gyre::jobs::node::internal {

using orders::WorkOrder;

namespace {

using Json = nlohmann::json;

/// `gyre launch` takes at most a week.
constexpr std::int64_t kLingerSeconds = 7LL * 24 * 3600;

constexpr const char* kEnv = "/usr/bin/env";

constexpr std::array kVariablesOfRanks = {launch_contract::kRank,
                                          launch_contract::kSize,
                                          launch_contract::kLocalRank,
                                          launch_contract::kLocalSize,
                                          launch_contract::kRendezvous,
                                          launch_contract::kRendezvousDescriptor,
                                          launch_contract::kKeyDescriptor,
                                          launch_contract::kFailureDescriptor,
                                          launch_contract::kEndedDescriptor,
                                          "RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "GROUP_RANK",
                                          "GROUP_WORLD_SIZE",
                                          "ROLE_RANK",
                                          "ROLE_WORLD_SIZE",
                                          "ROLE_NAME",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "TORCHELASTIC_RUN_ID",
                                          "TORCHELASTIC_RESTART_COUNT",
                                          "TORCHELASTIC_MAX_RESTARTS",
                                          "TORCHELASTIC_USE_AGENT_STORE",
                                          "HOROVOD_RANK",
                                          "HOROVOD_SIZE",
                                          "HOROVOD_LOCAL_RANK",
                                          "HOROVOD_LOCAL_SIZE",
                                          "HOROVOD_CROSS_RANK",
                                          "HOROVOD_CROSS_SIZE",
                                          "OMP_NUM_THREADS"};

Json rank_of(const Started& process, const std::string& folder) {
  Json rank = {{"command", process.command}, {"environment", process.environment},
               {"folder", folder},           {"role", process.role},
               {"index", process.index},     {"role_size", process.role_size}};
  if (!process.stdout_file.empty()) rank["stdout"] = process.stdout_file.string();
  if (!process.stderr_file.empty()) rank["stderr"] = process.stderr_file.string();
  return rank;
}

}  // namespace

std::vector<std::string> without_rank_variables(const std::vector<std::string>& command, const spec::JobSpec& job) {
  std::vector<std::string> whole = {kEnv};
  std::vector<std::string> set_again;
  for (const char* name : kVariablesOfRanks) {
    const auto own = std::ranges::find(job.environment_variables, name, &spec::EnvironmentVariable::name);
    whole.emplace_back("-u");
    whole.emplace_back(name);
    if (own != job.environment_variables.end()) set_again.push_back(fmt::format("{}={}", name, own->value));
  }
  whole.insert(whole.end(), set_again.begin(), set_again.end());
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

const char* shell_program() {
  return ::access("/bin/bash", X_OK) == 0 || ::access("/bin/sh", X_OK) != 0 ? "/bin/bash" : "/bin/sh";
}

std::string lacks_programs(const spec::JobSpec& job) {
  const bool interactive = job.container_settings && job.container_settings->read_bashrc;
  if (interactive && ::access("/bin/bash", X_OK) != 0) return "no /bin/bash, which readBashrc needs";
  if (::access(shell_program(), X_OK) != 0) return "neither /bin/bash nor /bin/sh";
  if (::access(kEnv, X_OK) != 0) return fmt::format("no {}", kEnv);
  return "";
}

std::vector<std::string> shell_command(const std::string& line, bool rank, const spec::JobSpec& job) {
  // An image's ~/.bashrc is read by interactive shells alone, and most of them check that themselves.
  const bool interactive = job.container_settings && job.container_settings->read_bashrc;
  const std::vector<std::string> command = interactive ? std::vector<std::string>{"/bin/bash", "-ic", line}
                                                       : std::vector<std::string>{shell_program(), "-c", line};
  return rank ? command : without_rank_variables(command, job);
}

Json launch_specification(const std::vector<Started>& processes, const std::filesystem::path& socket,
                          const std::string& folder) {
  Json ranks = Json::array();
  for (const Started& process : processes) ranks.push_back(rank_of(process, folder));
  return {{"ranks", ranks}, {"socket", socket.string()}, {"linger_seconds", kLingerSeconds}};
}

void add_ranks(Json& specification, const WorkOrder& order, const std::vector<NodePlan>& plans) {
  const NodePlan& own = plans[static_cast<std::size_t>(order.node)];
  const auto has_ranks = [](const NodePlan& plan) { return !plan.processes.empty(); };
  const auto nodes = std::ranges::count_if(plans, has_ranks);
  const std::string& master = order.nodes.front().address;
  specification["master_address"] = master;
  specification["master_port"] = own.master_port;
  specification["run_id"] = order.attempt;
  if (nodes == 1) return;
  specification["job"] = {{"node", std::count_if(plans.begin(), plans.begin() + order.node, has_ranks)},
                          {"nodes", nodes},
                          {"first_rank", own.first_rank},
                          {"size", own.size},
                          {"rendezvous", fmt::format("tcp:{}:{}", master, own.rendezvous_port)},
                          {"key", order.key}};
}

}  // namespace gyre::jobs::node::internal
