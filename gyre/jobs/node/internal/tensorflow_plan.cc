#include "gyre/jobs/node/internal/tensorflow_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "gyre/jobs/node/internal/mpi_line.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::node::internal {

using orders::NodeFacts;
using orders::WorkOrder;

namespace {

using Json = nlohmann::json;

/// All processes of the job, and who is where.
struct Roles {
  std::vector<std::string> servers;  // "address:port"
  std::vector<std::string> workers;  // The master first.
  std::vector<int> workers_on;       // By node.
};

Roles make_roles(const WorkOrder& order, const spec::TensorFlowSettings& settings,
                 const std::vector<NodeFacts>& facts) {
  const int nodes = static_cast<int>(order.nodes.size());
  const int server_count = spec::parameter_server_count(settings, nodes);
  Roles roles;
  roles.workers_on = spread(spec::worker_count(settings, nodes), nodes);
  for (int node = 0; node < nodes; ++node) {
    const auto& ports = facts[static_cast<std::size_t>(node)].ports;
    const std::string& address = order.nodes[static_cast<std::size_t>(node)].address;
    std::size_t next = 0;
    if (node < server_count) roles.servers.push_back(fmt::format("{}:{}", address, ports.at(next++)));
    for (int i = 0; i < roles.workers_on[static_cast<std::size_t>(node)]; ++i) {
      roles.workers.push_back(fmt::format("{}:{}", address, ports.at(next++)));
    }
  }
  return roles;
}

/// As Batch AI documents it: the master is the first worker of the cluster, and a task of its own type.
std::string tf_config(const Roles& roles, const std::string& type, int index) {
  Json cluster = {{"worker", roles.workers}};
  if (!roles.servers.empty()) cluster["ps"] = roles.servers;
  const Json config = {{"cluster", cluster}, {"task", {{"type", type}, {"index", index}}}, {"environment", "cloud"}};
  return config.dump();
}

ProcessPlan make_process(const Roles& roles, const std::string& role, int index, const std::string& line) {
  const bool server = role == "ps";
  ProcessPlan process;
  process.shell_line = line;
  process.role = role;
  process.server = server;
  process.index = index;
  process.role_size = static_cast<int>(server ? roles.servers.size() : roles.workers.size());
  process.log_suffix = fmt::format("-{}-{}", server ? "ps" : "wk", index);
  process.variables = {{"AZ_BATCHAI_TASK_INDEX", std::to_string(index)},
                       {"AZ_BATCHAI_TASK_TYPE", role},
                       {"AZ_BATCHAI_PS_HOSTS", fmt::format("{}", fmt::join(roles.servers, ","))},
                       {"AZ_BATCHAI_WORKER_HOSTS", fmt::format("{}", fmt::join(roles.workers, ","))},
                       {"TF_CONFIG", tf_config(roles, role, index)}};
  return process;
}

}  // namespace

int tensorflow_processes(const WorkOrder& order, const spec::TensorFlowSettings& settings, int node) {
  const int nodes = static_cast<int>(order.nodes.size());
  const int workers = spread(spec::worker_count(settings, nodes), nodes)[static_cast<std::size_t>(node)];
  return workers + (node < spec::parameter_server_count(settings, nodes) ? 1 : 0);
}

std::vector<NodePlan> tensorflow_plan(const WorkOrder& order, const spec::TensorFlowSettings& settings,
                                      const std::vector<NodeFacts>& facts) {
  const Roles roles = make_roles(order, settings, facts);
  const auto line = [&](const std::string& arguments) {
    const std::string command = python_command(settings.python);
    return arguments.empty() ? command : command + " " + arguments;
  };
  std::vector<NodePlan> plans;
  int next_worker = 0;
  for (std::size_t node = 0; node < order.nodes.size(); ++node) {
    NodePlan plan;
    if (node < roles.servers.size()) {
      plan.processes.push_back(
          make_process(roles, "ps", static_cast<int>(node), line(settings.parameter_server_command_line_args)));
    }
    for (int i = 0; i < roles.workers_on[node]; ++i, ++next_worker) {
      const bool master = next_worker == 0;
      plan.processes.push_back(
          make_process(roles, master ? "master" : "worker", next_worker,
                       line(master ? settings.master_command_line_args : settings.worker_command_line_args)));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace gyre::jobs::node::internal
