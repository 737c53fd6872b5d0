#include "gyre/jobs/service/internal/work.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/jobs/api/errors.h"
#include "gyre/jobs/service/internal/names.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

namespace fs = std::filesystem;

catalog::Catalog open_catalog(const fs::path& folder) {
  fs::create_directories(folder);
  return catalog::Catalog::open(folder / "catalog.db");
}

}  // namespace

class Watchers::Entry final : public api::JobService::Watch {
 public:
  explicit Entry(std::shared_ptr<std::function<void()>> changed) : changed_(std::move(changed)) {}

 private:
  std::shared_ptr<std::function<void()>> changed_;
};

std::unique_ptr<api::JobService::Watch> Watchers::add(std::function<void()> changed) {
  auto shared = std::make_shared<std::function<void()>>(std::move(changed));
  const MutexLock lock(mutex_);
  entries_.push_back(shared);
  return std::make_unique<Entry>(std::move(shared));
}

void Watchers::call() {
  std::vector<std::shared_ptr<std::function<void()>>> present;
  {
    const MutexLock lock(mutex_);
    entries_.remove_if([](const auto& entry) { return entry.expired(); });
    for (const auto& entry : entries_) {
      if (auto changed = entry.lock()) present.push_back(std::move(changed));
    }
  }
  for (const auto& changed : present) (*changed)();
}

Service::Work::Work(const ServiceOptions& service_options)
    : options(service_options),
      ledger(open_catalog(options.folder)),
      dispatcher(options, ledger, [watchers = watchers] { watchers->call(); }) {}

void Service::Work::changed() {
  dispatcher.wake();
  watchers->call();
}

api::Workspace Service::Work::shown(const catalog::Workspace& workspace) const {
  return {.name = workspace.name, .location = workspace.location, .creation_time = workspace.created};
}

api::Experiment Service::Work::shown(const catalog::Experiment& experiment, const std::string& workspace) const {
  return {.name = {workspace, experiment.name},
          .creation_time = experiment.created,
          .provisioning_state = api::ProvisioningState::kSucceeded,
          .provisioning_state_transition_time = experiment.created};
}

api::Cluster Service::Work::shown(const catalog::Cluster& cluster, const std::string& workspace) {
  api::Cluster result;
  result.name = {workspace, cluster.name};
  result.spec = cluster_spec(cluster.spec, cluster.scale);
  result.creation_time = cluster.created;
  result.provisioning_state = service::shown(cluster.provisioning_state);
  result.provisioning_state_transition_time = cluster.provisioning_changed;
  result.allocation_state = service::shown(cluster.allocation_state);
  result.allocation_state_transition_time = cluster.allocation_changed;
  for (const catalog::Node& node : ledger.catalog.nodes().list(cluster.id)) {
    ++result.current_node_count;
    switch (node.state) {
      case catalog::NodeState::kIdle: ++result.node_state_counts.idle; break;
      case catalog::NodeState::kRunning: ++result.node_state_counts.running; break;
      case catalog::NodeState::kAllocating:
      case catalog::NodeState::kPreparing: ++result.node_state_counts.preparing; break;
      case catalog::NodeState::kLeaving: ++result.node_state_counts.leaving; break;
      case catalog::NodeState::kUnusable:
      case catalog::NodeState::kLost: {
        ++result.node_state_counts.unusable;
        api::ResourceError error{.code = "NodeUnusable", .message = node.problem};
        error.details.push_back({"node", node.name});
        result.errors.push_back(std::move(error));
      }
    }
  }
  return result;
}

api::Job Service::Work::shown(const catalog::Job& job, const api::JobName& name) const {
  api::Job result;
  result.name = name;
  result.uuid = job.uuid;
  result.spec = job_spec(job.spec);
  result.creation_time = job.created;
  result.provisioning_state = service::shown(job.provisioning_state);
  result.provisioning_state_transition_time = job.provisioning_changed;
  result.execution_state = service::shown(job.execution_state);
  result.execution_state_transition_time = job.execution_changed;
  result.execution_info = {.start_time = job.start, .end_time = job.end, .exit_code = job.exit_code};
  if (job.error) result.execution_info.errors.push_back(service::shown(*job.error));
  result.attempts = job.attempts;
  result.job_output_directory_path_segment = path_segment(options, name, job.uuid);
  return result;
}

void Service::Work::require_finished(const catalog::JobFilter& filter, const std::string& code,
                                     const std::string& what) {
  for (const auto& [state, count] : ledger.catalog.jobs().count(filter)) {
    if (catalog::is_finished(state) || count == 0) continue;
    throw api::ServiceError(api::ServiceError::Kind::kConflict, code,
                            fmt::format("{} has jobs that have not finished ({} {}); terminate them first", what, count,
                                        catalog::name(state)));
  }
}

catalog::PageRequest kept(const api::PageRequest& page) {
  catalog::PageRequest result{.limit = page.limit, .newest_first = page.newest_first};
  if (page.after.empty()) return result;
  const char* end = page.after.data() + page.after.size();
  const auto parsed = std::from_chars(page.after.data(), end, result.after);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' does not name a place in a list", page.after));
  }
  return result;
}

}  // namespace gyre::jobs::service
