#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/internal/cluster_use.h"
#include "gyre/jobs/service/internal/names.h"
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/internal/work.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

using resources::ServiceError;

namespace {

void check_scale(const resources::Scale& scale, int most_nodes) {
  const auto* manual = std::get_if<spec::ManualScale>(&scale);
  const int most = manual ? manual->target_node_count : std::get<spec::AutoScale>(scale).maximum_node_count;
  if (most <= most_nodes) return;
  throw ServiceError(ServiceError::Kind::kInvalid, "NodeCountTooLarge",
                     fmt::format("a cluster of this driver has at most {} nodes, not {}", most_nodes, most));
}

}  // namespace

resources::Page<resources::Cluster> Service::clusters(const std::string& workspace,
                                                      const resources::PageRequest& page) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const auto list = ledger.catalog.clusters().list(ledger.workspace(workspace).id, kept(page));
  resources::Page<resources::Cluster> result;
  for (const catalog::Cluster& cluster : list.items) result.items.push_back(work_->shown(ledger, cluster, workspace));
  if (list.next) result.next = std::to_string(*list.next);
  return result;
}

resources::Cluster Service::cluster(const resources::ClusterName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return work_->shown(ledger, ledger.cluster(name), name.workspace);
}

namespace {

/// Where the drivers can see it, the one who makes the cluster learns of it, not the one whose job is the first.
void check_places(const drivers::Driver& driver, const resources::ClusterName& name, const spec::ClusterSpec& spec) {
  try {
    driver.check(spec);
  } catch (const Error& error) {
    const bool is_path = error.code() == ErrorCode::kInvalidArgument;
    if (!is_path && error.code() != ErrorCode::kUnsupported) throw;
    throw ServiceError(ServiceError::Kind::kInvalid, is_path ? "UnusablePath" : "ClusterNotUsable",
                       fmt::format("no job could start on cluster '{}': {}", name.cluster, error.what()));
  }
}

}  // namespace

spec::ClusterSpec Service::spec_of(const resources::ClusterName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const auto stored = stored_spec(ledger.cluster(name));
  if (stored.spec) return *stored.spec;
  throw ServiceError(ServiceError::Kind::kConflict, kUnreadableCluster,
                     fmt::format("cluster '{}' cannot be changed: {}", name.cluster, stored.problem));
}

resources::Created<resources::Cluster> Service::create_cluster(const resources::ClusterName& name,
                                                               const spec::ClusterSpec& spec) {
  const KeptSpec text = kept(spec);
  const auto existing =
      [&]() GYRE_REQUIRES(work_->ledger.mutex) -> std::optional<resources::Created<resources::Cluster>> {
    const catalog::Id workspace = work_->ledger.workspace(name.workspace).id;
    const auto found = work_->ledger.catalog.clusters().find(workspace, name.cluster);
    if (!found) return std::nullopt;
    if (found->spec == text.text)
      return resources::Created<resources::Cluster>{work_->shown(work_->ledger, *found, name.workspace), false};
    throw ServiceError(
        ServiceError::Kind::kConflict, "ClusterExists",
        fmt::format("cluster '{}' exists with other properties; only scaleSettings can change", name.cluster));
  };
  std::optional<resources::Created<resources::Cluster>> before;
  work_->dispatcher.try_out(spec, [&](const drivers::Driver& driver) {
    check_scale(spec.scale_settings, driver.most_nodes());
    {
      const MutexLock lock(work_->ledger.mutex);
      before = existing();
    }
    if (!before) check_places(driver, name, spec);
  });
  if (before) return *before;
  resources::Created<resources::Cluster> created;
  {
    const MutexLock lock(work_->ledger.mutex);
    if (auto found = existing()) return *found;
    const catalog::Id workspace = work_->ledger.workspace(name.workspace).id;
    work_->ledger.catalog.together([&]() GYRE_REQUIRES(work_->ledger.mutex) {
      auto clusters = work_->ledger.catalog.clusters();
      const auto made = clusters.create({.workspace = workspace,
                                         .name = name.cluster,
                                         .spec = text.text,
                                         .scale = kept_scale(spec.scale_settings),
                                         .secrets = text.secrets});
      clusters.change(made.id, resources::ProvisioningState::kSucceeded, {});
      created = {work_->shown(work_->ledger, clusters.get(made.id), name.workspace), true};
    });
  }
  work_->changed();
  return created;
}

resources::Cluster Service::scale_cluster(const resources::ClusterName& name, const resources::Scale& scale) {
  check_scale(scale, work_->dispatcher.most_nodes(spec_of(name)));
  resources::Cluster cluster;
  {
    const MutexLock lock(work_->ledger.mutex);
    const catalog::Cluster found = work_->ledger.cluster(name);
    if (found.provisioning_state == resources::ProvisioningState::kDeleting) {
      throw ServiceError(ServiceError::Kind::kConflict, "ClusterDeleting",
                         fmt::format("cluster '{}' is being deleted", name.cluster));
    }
    work_->ledger.catalog.clusters().set_scale(found.id, kept_scale(scale), {"request", "scaleSettings were changed"});
    cluster = work_->shown(work_->ledger, work_->ledger.cluster(name), name.workspace);
  }
  work_->changed();
  return cluster;
}

void Service::delete_cluster(const resources::ClusterName& name) {
  {
    const MutexLock lock(work_->ledger.mutex);
    const catalog::Cluster cluster = work_->ledger.cluster(name);
    work_->require_finished({.cluster = cluster.id}, "ClusterInUse", fmt::format("cluster '{}'", name.cluster));
    work_->ledger.catalog.clusters().change(cluster.id, resources::ProvisioningState::kDeleting, {"request", ""});
  }
  work_->changed();
}

std::vector<resources::Node> Service::nodes(const resources::ClusterName& name) {
  std::vector<resources::Node> nodes;
  std::vector<catalog::Id> ids;
  const spec::ClusterSpec spec = cluster(name).spec;
  {
    const Readers::Loan reader = work_->readers.borrow();
    Ledger& ledger = reader.ledger();
    const MutexLock lock(ledger.mutex);
    for (const catalog::Node& node : ledger.catalog.nodes().list(ledger.cluster(name).id)) {
      resources::Node shown{
          .name = node.name, .state = node.state, .state_transition_time = node.state_changed, .problem = node.problem};
      if (node.attempt) {
        const catalog::Job job = ledger.catalog.jobs().get(ledger.catalog.attempts().get(*node.attempt).job);
        shown.job = ledger.experiment_name(job.experiment) + "/" + job.name;
      }
      nodes.push_back(std::move(shown));
      ids.push_back(node.id);
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].address = work_->dispatcher.address_of(spec, nodes[i].name, ids[i]);
    nodes[i].gpus = work_->dispatcher.gpus_per_node(spec);
  }
  return nodes;
}

namespace {

/// How many there are now.
ClusterNow count_now(Ledger& ledger, catalog::Id cluster) GYRE_REQUIRES(ledger.mutex) {
  ClusterNow now;
  for (const catalog::Node& node : ledger.catalog.nodes().list(cluster)) {
    const bool runs = node.state == resources::NodeState::kRunning;
    ++(runs ? now.running : node.state == resources::NodeState::kIdle ? now.idle : now.other);
  }
  catalog::PageRequest request{.limit = catalog::kLongestPage};
  for (bool more = true; more;) {
    const auto page =
        ledger.catalog.jobs().list({.cluster = cluster, .state = resources::ExecutionState::kQueued}, request);
    now.waiting += static_cast<int>(page.items.size());
    more = page.next.has_value();
    request.after = page.next.value_or(0);
  }
  return now;
}

}  // namespace

resources::ClusterUse Service::use(const resources::ClusterName& name, std::chrono::seconds time) {
  constexpr int kParts = 120;
  constexpr std::size_t kMostEvents = 100'000;
  const catalog::TimeUs end = work_->options.wall_clock();
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const catalog::Id cluster = ledger.cluster(name).id;
  UseHistory history(count_now(ledger, cluster), end - std::chrono::microseconds(time).count(), end, kParts);
  catalog::PageRequest request{.limit = catalog::kLongestPage, .newest_first = true};
  for (std::size_t taken = 0; taken < kMostEvents;) {
    const auto page = ledger.catalog.events().list({.cluster = cluster}, request);
    for (const catalog::Event& event : page.items) {
      if (!history.take(event)) return std::move(history).result(true);
    }
    if (!page.next) return std::move(history).result(true);
    taken += page.items.size();
    request.after = *page.next;
  }
  return std::move(history).result(false);
}

}  // namespace gyre::jobs::service
