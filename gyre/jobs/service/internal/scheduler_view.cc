#include "gyre/jobs/service/internal/scheduler_view.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "gyre/base/cores.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

using catalog::Id;
using resources::AttemptState;

void SchedulerView::add_quotas(Ledger& ledger, scheduler::State& state) {
  catalog::PageRequest request{.limit = catalog::kLongestPage};
  for (bool more = true; more;) {
    const auto page = ledger.catalog.workspaces().list(request);
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
resources::Scale SchedulerView::scale_of(Ledger& ledger, const catalog::Cluster& cluster,
                                         const spec::ClusterSpec& spec) {
  resources::Scale scale = spec.scale_settings;
  auto* automatic = std::get_if<spec::AutoScale>(&scale);
  if (automatic == nullptr || automatic->initial_node_count <= automatic->minimum_node_count) return scale;
  const bool is_new = ledger.catalog.jobs().list({.cluster = cluster.id}, {.limit = 1}).items.empty();
  if (is_new) {
    automatic->minimum_node_count = std::min(automatic->initial_node_count, automatic->maximum_node_count);
  }
  return scale;
}

void SchedulerView::add_clusters(Ledger& ledger, scheduler::State& state) {
  ledger.for_each_cluster([&](const catalog::Cluster& cluster) GYRE_REQUIRES(ledger.mutex) {
    const auto stored = stored_spec(cluster);
    spec::ClusterSpec spec = stored.spec.value_or(spec::ClusterSpec{});
    if (!stored.spec) {  // It keeps the nodes that it has.
      spec.scale_settings = spec::ManualScale{static_cast<int>(ledger.catalog.nodes().list(cluster.id).size())};
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
                              .scale = scheduled(scale_of(ledger, cluster, spec))});
  });
}

void SchedulerView::add_nodes(Ledger& ledger, scheduler::State& state) {
  std::map<Id, bool> is_unusable;
  for (const catalog::Node& node : ledger.catalog.nodes().list()) {
    const auto [known, is_new] = is_unusable.try_emplace(node.cluster, false);
    if (is_new) known->second = is_unusable_(node.cluster);
    const bool stuck = node.state == resources::NodeState::kIdle && known->second;
    state.nodes.push_back({.id = node.id,
                           .cluster = node.cluster,
                           .state = stuck ? scheduler::NodeReadiness::kUnusable : scheduled(node.state)});
  }
}

scheduler::State SchedulerView::state(Ledger& ledger) {
  scheduler::State state;
  const auto since_start = [](SteadyClock::time_point when) {
    return std::chrono::duration_cast<scheduler::Time>(when.time_since_epoch());
  };
  state.now = since_start(SteadyClock::now());
  add_quotas(ledger, state);
  add_clusters(ledger, state);
  add_nodes(ledger, state);
  const std::vector<catalog::Attempt> attempts = ledger.catalog.attempts().unended();
  std::set<Id> busy;
  for (const catalog::Attempt& attempt : attempts) busy.insert(attempt.job);
  queue_.refresh(ledger.catalog, busy);
  std::erase_if(ledger.retries, [now = SteadyClock::now()](const auto& each) { return each.second <= now; });
  std::set<Id> paused;
  for (const auto& [job, until] : ledger.retries) paused.insert(job);
  queue_.pause(paused);
  for (const catalog::Attempt& attempt : attempts) {
    const auto job = queue_.busy().find(attempt.job);
    if (job == queue_.busy().end()) continue;
    scheduler::RunningJob running{.job = job->second, .ending = attempt.state == AttemptState::kEnding};
    for (const catalog::AttemptNode& node : attempt.nodes) running.nodes.push_back(node.id);
    const auto live = ledger.live.find(attempt.id);
    running.started = live == ledger.live.end() ? state.now : since_start(live->second.started);
    state.running.push_back(std::move(running));
  }
  return state;
}

}  // namespace gyre::jobs::service
