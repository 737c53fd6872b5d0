// What the scheduler gets to see of the catalog, and what people hear of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/scheduler/explain.h"
#include "gyre/jobs/service/internal/dispatcher.h"
#include "gyre/jobs/service/internal/orders.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

using catalog::Id;
using resources::AttemptState;

void Dispatcher::add_quotas(scheduler::State& state) {
  catalog::PageRequest request{.limit = catalog::kLongestPage};
  for (bool more = true; more;) {
    const auto page = ledger_.catalog.workspaces().list(request);
    for (const catalog::Workspace& workspace : page.items) {
      const auto add = [&](scheduler::NodePriority priority, const std::optional<std::int64_t>& cores) {
        if (cores) state.quotas.push_back({workspace.name, priority, static_cast<int>(*cores)});
      };
      add(scheduler::NodePriority::kDedicated, workspace.quotas.cores);
      add(scheduler::NodePriority::kLowPriority, workspace.quotas.low_priority_cores);
    }
    more = page.next.has_value();
    request.after = page.next.value_or(0);
  }
}

/// A new cluster that scales by itself keeps the nodes that it was to begin with until its first job comes.
resources::Scale Dispatcher::scale_of(const catalog::Cluster& cluster, const spec::ClusterSpec& spec) {
  resources::Scale scale = spec.scale_settings;
  auto* automatic = std::get_if<spec::AutoScale>(&scale);
  if (automatic == nullptr || automatic->initial_node_count <= automatic->minimum_node_count) return scale;
  const bool is_new = ledger_.catalog.jobs().list({.cluster = cluster.id}, {.limit = 1}).items.empty();
  if (is_new) {
    automatic->minimum_node_count = std::min(automatic->initial_node_count, automatic->maximum_node_count);
  }
  return scale;
}

void Dispatcher::add_clusters(scheduler::State& state) {
  for_each_cluster([&](const catalog::Cluster& cluster) GYRE_REQUIRES(ledger_.mutex) {
    const auto stored = stored_spec(cluster);
    spec::ClusterSpec spec = stored.spec.value_or(spec::ClusterSpec{});
    if (!stored.spec) {  // It keeps the nodes that it has.
      spec.scale_settings = spec::ManualScale{static_cast<int>(ledger_.catalog.nodes().list(cluster.id).size())};
    }
    // Its nodes go, and none comes in the place of one that was lost.
    if (cluster.provisioning_state == resources::ProvisioningState::kDeleting)
      spec.scale_settings = spec::ManualScale{0};
    state.clusters.push_back({.id = cluster.id,
                              .name = cluster.name,
                              .node_priority = spec.vm_priority == spec::VmPriority::kDedicated
                                                   ? scheduler::NodePriority::kDedicated
                                                   : scheduler::NodePriority::kLowPriority,
                              .cores_per_node = usable_cores(),
                              .scale = scheduled(scale_of(cluster, spec))});
  });
}

void Dispatcher::add_nodes(scheduler::State& state) {
  std::map<Id, bool> is_unusable;
  for (const catalog::Node& node : ledger_.catalog.nodes().list()) {
    const auto [known, is_new] = is_unusable.try_emplace(node.cluster, false);
    if (is_new) known->second = problem_of(node.cluster).has_value();
    const bool stuck = node.state == resources::NodeState::kIdle && known->second;
    state.nodes.push_back({.id = node.id,
                           .cluster = node.cluster,
                           .state = stuck ? scheduler::NodeReadiness::kUnusable : scheduled(node.state)});
  }
}

scheduler::State Dispatcher::state() {
  scheduler::State state;
  const auto since_start = [](SteadyClock::time_point when) {
    return std::chrono::duration_cast<scheduler::Time>(when.time_since_epoch());
  };
  state.now = since_start(SteadyClock::now());
  add_quotas(state);
  add_clusters(state);
  add_nodes(state);
  const std::vector<Attempt> attempts = ledger_.catalog.attempts().unended();
  std::set<Id> busy;
  for (const Attempt& attempt : attempts) busy.insert(attempt.job);
  queue_.refresh(ledger_.catalog, busy);
  std::erase_if(ledger_.retries, [now = SteadyClock::now()](const auto& each) { return each.second <= now; });
  std::set<Id> paused;
  for (const auto& [job, until] : ledger_.retries) paused.insert(job);
  queue_.pause(paused);
  for (const Attempt& attempt : attempts) {
    const auto job = queue_.busy().find(attempt.job);
    if (job == queue_.busy().end()) continue;
    scheduler::RunningJob running{.job = job->second, .ending = attempt.state == AttemptState::kEnding};
    for (const catalog::AttemptNode& node : attempt.nodes) running.nodes.push_back(node.id);
    const auto live = ledger_.live.find(attempt.id);
    running.started = live == ledger_.live.end() ? state.now : since_start(live->second.started);
    state.running.push_back(std::move(running));
  }
  return state;
}

std::vector<resources::OutputDirectory> Dispatcher::output_directories(const catalog::Job& job) {
  catalog::Cluster cluster;
  {
    const MutexLock lock(ledger_.mutex);
    if (ledger_.catalog.attempts().list(job.id).empty()) return {};
    cluster = ledger_.catalog.clusters().get(job.cluster);
  }
  const Drivers::Key key = Drivers::key_of(cluster_spec(cluster.spec, cluster.scale));
  const drivers::Driver* driver = drivers_.find(key);
  if (const auto problem = problem_of(cluster.id); driver == nullptr && problem) {
    throw Error(ErrorCode::kUnsupported, fmt::format("cluster '{}' cannot be used: {}", cluster.name, *problem));
  }
  if (driver == nullptr) driver = &drivers_.of(key);  // Of a cluster that was deleted before this service started.
  orders::WorkOrder order;
  {
    const MutexLock lock(ledger_.mutex);
    const std::vector<Attempt> attempts = ledger_.catalog.attempts().list(job.id);
    if (attempts.empty()) return {};
    order = order_of(ledger_, options_, *driver, attempts.back(), false);
  }
  order = driver->completed(std::move(order));
  const node::NodeFolders folders = driver->folders(order);
  const node::MountPlan mounts = node::plan_mounts(order, folders);
  const node::JobEnvironment environment = node::job_environment(order, folders, options_.environment);
  std::vector<resources::OutputDirectory> directories;
  const auto add = [&](const std::string& id, const std::string& path) {
    const std::string real = node::resolved(path, mounts).string();
    const std::size_t segment = real.find("/" + order.path_segment);
    if (segment != std::string::npos) directories.push_back({id, real.substr(0, segment), real.substr(segment + 1)});
  };
  add("stdouterr", environment.log_folder);
  if (!order.job.output_files.empty()) add(std::string(spec::kKeptFiles), environment.kept_files);
  for (const node::OutputPlace& output : environment.outputs) add(output.id, output.path);
  return directories;
}

CoresInUse Dispatcher::cores_in_use(const std::string& workspace) {
  const MutexLock lock(ledger_.mutex);
  const scheduler::State now = state();
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
  const scheduler::State now = state();
  const auto unusable = problem_of(described.cluster);
  const auto paused = ledger_.retries.contains(job);
  if (paused && !unusable) {
    return resources::Explanation{
        .reason = "retryPause",
        .message = "its last attempt ended through no fault of its own; it waits before the next one",
        .remedies = {},
        .expected_start = described.retry};
  }
  const auto found = scheduler::explain(job, now, queue_.waiting());
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
