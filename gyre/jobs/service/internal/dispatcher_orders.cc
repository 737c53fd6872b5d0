// The dispatcher's orders: whose nodes a job gets, what they are handed, and where it writes.
#include <fmt/format.h>

#include "gyre/base/error.h"
#include "gyre/jobs/agent/job_environment.h"
#include "gyre/jobs/agent/mounts.h"
#include "gyre/jobs/agent/node_folders.h"
#include "gyre/jobs/service/internal/dispatcher.h"
#include "gyre/jobs/service/internal/names.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

using catalog::Id;

int Dispatcher::most_nodes(const spec::ClusterSpec& cluster) {
  const MutexLock lock(ledger_.mutex);
  return drivers_.of(cluster).most_nodes();
}

void Dispatcher::check(const spec::ClusterSpec& cluster) {
  const drivers::Driver* driver = nullptr;
  {
    const MutexLock lock(ledger_.mutex);
    driver = &drivers_.of(cluster);
  }
  driver->check(cluster);
}

std::string Dispatcher::address_of(const spec::ClusterSpec& cluster, const std::string& node, Id id) {
  const MutexLock lock(ledger_.mutex);
  try {
    return drivers_.of(cluster).place(node, id).address;
  } catch (const Error&) {
    return "";  // What is wrong stands with the cluster.
  }
}

drivers::Driver& Dispatcher::driver_of(const catalog::Cluster& cluster) {
  if (const auto problem = problem_of(cluster.id)) {
    throw Error(ErrorCode::kUnsupported, fmt::format("cluster '{}' cannot be used: {}", cluster.name, *problem));
  }
  return drivers_.of(cluster_spec(cluster.spec, cluster.scale));
}

Id Dispatcher::cluster_of(const Attempt& attempt) { return ledger_.catalog.jobs().get(attempt.job).cluster; }

agent::WorkOrder Dispatcher::order_of(const Attempt& attempt) {
  return order_of(attempt, ledger_.catalog.jobs().get(attempt.job), true);
}

drivers::Driver& Dispatcher::driver_of(const Attempt& attempt) {
  return driver_of(ledger_.catalog.clusters().get(ledger_.catalog.jobs().get(attempt.job).cluster));
}

agent::WorkOrder Dispatcher::order_of(const Attempt& attempt, const catalog::Job& job, bool with_secrets) {
  const catalog::Cluster cluster = ledger_.catalog.clusters().get(job.cluster);
  agent::WorkOrder order;
  order.attempt = attempt.id;
  order.attempt_number = attempt.number;
  order.job_name = job.name;
  order.account = job.account;
  order.cluster_name = cluster.name;
  const api::JobName name{ledger_.workspace_name(job.workspace), ledger_.experiment_name(job.experiment), job.name};
  order.path_segment = path_segment(options_, name, job.uuid);
  order.setup_path_suffix =
      path_suffix(options_, {ledger_.workspace_name(cluster.workspace), cluster.name}, cluster.uuid);
  order.job = with_secrets ? job_spec(job.spec, ledger_.catalog.attempts().secrets(attempt.id)) : job_spec(job.spec);
  order.cluster = with_secrets
                      ? cluster_spec(cluster.spec, cluster.scale, ledger_.catalog.clusters().secrets(cluster.id))
                      : cluster_spec(cluster.spec, cluster.scale);
  if (!job.code.empty()) {
    order.code_archive = ledger_.code.path(job.workspace, job.code).string();
    order.code_sha256 = job.code;
  }
  const drivers::Driver& driver = driver_of(cluster);
  for (const catalog::AttemptNode& node : attempt.nodes) order.nodes.push_back(driver.place(node.name, node.id));
  return order;
}

std::vector<api::OutputDirectory> Dispatcher::output_directories(const catalog::Job& job) {
  const MutexLock lock(ledger_.mutex);
  const std::vector<Attempt> attempts = ledger_.catalog.attempts().list(job.id);
  if (attempts.empty()) return {};
  const drivers::Driver& driver = driver_of(ledger_.catalog.clusters().get(job.cluster));
  const agent::WorkOrder order = driver.completed(order_of(attempts.back(), job, false));
  const agent::NodeFolders folders = driver.folders(order);
  const agent::MountPlan mounts = agent::plan_mounts(order, folders);
  const agent::JobEnvironment environment = agent::job_environment(order, folders, options_.environment);
  std::vector<api::OutputDirectory> directories;
  const auto add = [&](const std::string& id, const std::string& path) {
    const std::string real = agent::resolved(path, mounts).string();
    const std::size_t segment = real.find("/" + order.path_segment);
    if (segment != std::string::npos) directories.push_back({id, real.substr(0, segment), real.substr(segment + 1)});
  };
  add("stdouterr", environment.log_folder);
  for (const agent::OutputPlace& output : environment.outputs) add(output.id, output.path);
  return directories;
}

}  // namespace gyre::jobs::service
