// What people hear of the state of things.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/hub/log_store.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/scheduler/explain.h"
#include "gyre/jobs/service/internal/dispatcher.h"
#include "gyre/jobs/service/internal/orders.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

using catalog::Id;

namespace {

constexpr std::size_t kMostKnownDirectories = 256;  // Of attempts; beyond, all are found anew.

}  // namespace

std::shared_ptr<hub::NodeStream> Dispatcher::open_stream(const spec::ClusterSpec& cluster,
                                                         const orders::StreamRequest& request, std::size_t node) {
  drivers::Driver* driver = drivers_.find(Drivers::key_of(cluster));
  if (driver == nullptr) throw Error(ErrorCode::kUnsupported, "the cluster cannot be used at present");
  return driver->open_stream(request, node);
}

// Every page that shows the job asks this again and again.
std::vector<resources::OutputDirectory> Dispatcher::output_directories(const catalog::Job& job) {
  Attempt attempt;
  catalog::Cluster cluster;
  {
    const MutexLock lock(ledger_.mutex);
    std::vector<Attempt> attempts = ledger_.catalog.attempts().list(job.id);
    if (attempts.empty()) return {};
    attempt = std::move(attempts.back());
    cluster = ledger_.catalog.clusters().get(job.cluster);
  }
  {
    const MutexLock lock(mutex_);
    if (const auto known = directories_.find(attempt.id); known != directories_.end()) return known->second;
  }
  Directories directories = find_directories(attempt, cluster);
  const MutexLock lock(mutex_);
  if (directories_.size() >= kMostKnownDirectories) directories_.clear();
  if (directories.settled) directories_.emplace(attempt.id, directories.list);
  return std::move(directories.list);
}

Dispatcher::Directories Dispatcher::find_directories(const Attempt& attempt, const catalog::Cluster& cluster) {
  const Drivers::Key key = Drivers::key_of(cluster_spec(cluster.spec, cluster.scale));
  const drivers::Driver* driver = drivers_.find(key);
  if (const auto problem = problem_of(cluster.id); driver == nullptr && problem) {
    throw Error(ErrorCode::kUnsupported, fmt::format("cluster '{}' cannot be used: {}", cluster.name, *problem));
  }
  if (driver == nullptr) driver = &drivers_.of(key);  // Of a cluster that was deleted before this service started.
  orders::WorkOrder order;
  {
    const MutexLock lock(ledger_.mutex);
    order = order_of(ledger_, options_, *driver, attempt, false);
  }
  order = driver->completed(std::move(order));
  const node::NodeFolders folders = driver->folders(order);
  const node::MountPlan mounts = node::plan_mounts(order, folders);
  const node::JobEnvironment environment = node::job_environment(order, folders, options_.environment);
  Directories directories;
  const auto add = [&](const std::string& id, const std::string& path) {
    const std::string real = node::resolved(path, mounts).string();
    const std::size_t segment = real.find("/" + order.path_segment);
    if (segment == std::string::npos) return;
    directories.list.push_back({id, real.substr(0, segment), real.substr(segment + 1)});
  };
  const std::filesystem::path received = hub::received_logs(options_.logs(), order);
  std::error_code ignored;
  const bool keeps_logs = node::keeps_logs_on_node(order, folders, environment);
  const bool from_nodes = keeps_logs && std::filesystem::exists(received, ignored);
  directories.settled = attempt.started && (from_nodes || !keeps_logs);
  add("stdouterr", from_nodes ? received.string() : environment.log_folder);
  if (!order.job.output_files.empty()) add(std::string(spec::kKeptFiles), environment.kept_files);
  for (const node::OutputPlace& output : environment.outputs) add(output.id, output.path);
  return directories;
}

CoresInUse Dispatcher::cores_in_use(const std::string& workspace) {
  const MutexLock lock(ledger_.mutex);
  const scheduler::State now = view_.state(ledger_);
  CoresInUse cores;
  for (const scheduler::RunningJob& running : now.running) {
    const auto cluster = std::ranges::find(now.clusters, running.job.cluster, &scheduler::Cluster::id);
    if (running.job.workspace != workspace || cluster == now.clusters.end()) continue;
    auto& held = cluster->node_priority == scheduler::NodePriority::kDedicated ? cores.dedicated : cores.low_priority;
    held += static_cast<std::int64_t>(running.nodes.size()) * cluster->cores_per_node;
  }
  return cores;
}

std::optional<resources::Explanation> Dispatcher::explain(Id job) {
  const MutexLock lock(ledger_.mutex);
  const catalog::Job described = ledger_.catalog.jobs().get(job);
  if (const auto stored = stored_spec(described); !stored.spec) {
    return resources::Explanation{.reason = kUnreadableJob, .message = stored.problem};
  }
  const scheduler::State now = view_.state(ledger_);
  const auto unusable = problem_of(described.cluster);
  const auto paused = ledger_.retries.contains(job);
  if (paused && !unusable) {
    return resources::Explanation{
        .reason = "retryPause",
        .message = "its last attempt ended through no fault of its own; it waits before the next one",
        .remedies = {},
        .expected_start = described.retry};
  }
  const auto found = scheduler::explain(job, now, view_.waiting());
  if (!found && !paused) return std::nullopt;
  if (unusable) {
    return resources::Explanation{.reason = "clusterUnusable", .message = "its cluster cannot be used: " + *unusable};
  }
  resources::Explanation explanation{.reason = std::string(scheduler::wait_reason_name(found->reason)),
                                     .message = found->text};
  if (found->startable_node_count) {
    explanation.remedies.push_back(
        fmt::format("it would start at once with nodeCount {}", *found->startable_node_count));
  }
  if (found->startable_wall_clock_limit) {
    explanation.remedies.push_back(
        fmt::format("it would start at once with a maxWallClockTime of {} s",
                    std::chrono::duration_cast<std::chrono::seconds>(*found->startable_wall_clock_limit).count()));
  }
  if (found->startable_priority) {
    explanation.remedies.push_back("it would start at once with a higher schedulingPriority");
  }
  if (found->latest_start) {
    const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(*found->latest_start - now.now);
    explanation.expected_start = options_.wall_clock() + wait.count();
  }
  return explanation;
}

}  // namespace gyre::jobs::service
