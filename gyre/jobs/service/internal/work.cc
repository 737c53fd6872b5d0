#include "gyre/jobs/service/internal/work.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/internal/folder_rights.h"
#include "gyre/jobs/service/internal/names.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

/// A full disk, or a copy that failed, may have left nothing of a catalog; a new one would forget all jobs.
void check_is_not_cut_off(const std::filesystem::path& folder) {
  const auto holds_something = [&](const char* name) {
    std::error_code failure;
    const std::filesystem::path path = folder / name;
    if (std::filesystem::is_directory(path, failure)) return !std::filesystem::is_empty(path, failure) && !failure;
    return std::filesystem::is_regular_file(path, failure) && std::filesystem::file_size(path, failure) > 0 && !failure;
  };
  const std::filesystem::path catalog = folder / "catalog.db";
  std::error_code failure;
  if (!std::filesystem::exists(catalog, failure) || holds_something("catalog.db") || holds_something("catalog.db-wal"))
    return;
  if (!holds_something("ended.log") && !holds_something("nodes")) return;
  throw Error(
      ErrorCode::kCorruptData,
      fmt::format("{} is empty, but its folder has nodes and ended jobs of a job service: it was cut off. "
                  "Restore a backup (docs/guide/backups.md); to begin anew without the old jobs, remove the file",
                  catalog.string()));
}

catalog::Catalog open_catalog(const ServiceOptions& options) {
  for (const std::string& sentence : guard_folder(options)) options.logger->warn("{}", sentence);
  check_is_not_cut_off(options.folder);
  const auto repaired = [&](const std::string& sentence) { options.logger->warn("{}", sentence); };
  return catalog::Catalog::open(options.folder / "catalog.db", {.now = options.wall_clock, .repaired = repaired});
}

}  // namespace

class Watchers::Holder final : public JobService::Watch {
 public:
  explicit Holder(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}

 private:
  std::shared_ptr<Entry> entry_;
};

std::unique_ptr<JobService::Watch> Watchers::add(Ledger& ledger, const catalog::EventFilter& filter,
                                                 std::function<void()> changed) {
  auto entry = std::make_shared<Entry>(filter, std::move(changed));
  const MutexLock ledger_lock(ledger.mutex);
  const MutexLock lock(mutex_);
  // Nobody has looked since the last one left.
  if (entries_.empty()) last_ = ledger.catalog.events().latest();
  entries_.push_back(entry);
  return std::make_unique<Holder>(std::move(entry));
}

std::vector<std::shared_ptr<Watchers::Entry>> Watchers::present() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Entry>> found;
  entries_.remove_if([&](const std::weak_ptr<Entry>& each) {
    auto entry = each.lock();
    if (!entry) return true;
    found.push_back(std::move(entry));
    return false;
  });
  return found;
}

std::vector<catalog::Event> Watchers::news(Ledger& ledger) {
  const MutexLock ledger_lock(ledger.mutex);
  const MutexLock lock(mutex_);
  std::vector<catalog::Event> events;
  for (bool more = true; more;) {
    auto page = ledger.catalog.events().list({}, {.after = last_, .limit = catalog::kLongestPage});
    if (!page.items.empty()) last_ = page.items.back().sequence;
    std::ranges::move(page.items, std::back_inserter(events));
    more = page.next.has_value();
  }
  return events;
}

void Watchers::call(Ledger& ledger) {
  const auto entries = present();
  if (entries.empty()) return;
  std::optional<std::vector<catalog::Event>> events;
  try {
    events = news(ledger);
  } catch (const Error&) {
    events = std::nullopt;  // They cannot be read now: everybody looks for themselves.
  }
  for (const auto& entry : entries) {
    const catalog::EventFilter& filter = entry->filter;
    const auto passes = [&](const catalog::Event& event) {
      if (filter.job) return event.job == filter.job;
      return filter.cluster ? event.cluster == filter.cluster : event.workspace == filter.workspace;
    };
    if (!events || std::ranges::any_of(*events, passes)) entry->changed();
  }
}

Service::Work::Work(const ServiceOptions& service_options)
    : options(service_options),
      ledger(open_catalog(options), options.folder, options.logger),
      readers(options.folder / "catalog.db", ledger),
      dispatcher(options, ledger, [this] { watchers.call(ledger); }) {}

void Service::Work::changed() {
  dispatcher.wake();
  watchers.call(ledger);
}

resources::Workspace Service::Work::shown(const catalog::Workspace& workspace) const {
  return {.name = workspace.name,
          .location = workspace.location,
          .creation_time = workspace.created,
          .quotas = workspace.quotas};
}

resources::Experiment Service::Work::shown(const catalog::Experiment& experiment, const std::string& workspace) const {
  return {.name = {workspace, experiment.name},
          .creation_time = experiment.created,
          .provisioning_state = resources::ProvisioningState::kSucceeded,
          .provisioning_state_transition_time = experiment.created};
}

resources::Cluster Service::Work::shown(Ledger& from, const catalog::Cluster& cluster, const std::string& workspace) {
  resources::Cluster result;
  result.name = {workspace, cluster.name};
  const auto stored = stored_spec(cluster);
  if (stored.spec) {
    result.spec = *stored.spec;
  } else {
    result.errors.push_back({.code = kUnreadableCluster, .message = stored.problem});
  }
  result.creation_time = cluster.created;
  result.provisioning_state = cluster.provisioning_state;
  result.provisioning_state_transition_time = cluster.provisioning_changed;
  result.allocation_state = cluster.allocation_state;
  result.allocation_state_transition_time = cluster.allocation_changed;
  for (const catalog::Node& node : from.catalog.nodes().list(cluster.id)) {
    ++result.current_node_count;
    switch (node.state) {
      case resources::NodeState::kIdle: ++result.node_state_counts.idle; break;
      case resources::NodeState::kRunning: ++result.node_state_counts.running; break;
      case resources::NodeState::kAllocating:
      case resources::NodeState::kPreparing: ++result.node_state_counts.preparing; break;
      case resources::NodeState::kLeaving: ++result.node_state_counts.leaving; break;
      case resources::NodeState::kUnusable:
      case resources::NodeState::kLost: {
        ++result.node_state_counts.unusable;
        result.errors.push_back({.code = "NodeUnusable", .message = node.problem, .details = {{"node", node.name}}});
      }
    }
  }
  if (stored.spec) {
    for (std::string& sentence : dispatcher.node_problems(*stored.spec)) {
      result.errors.push_back({.code = "HostUnreachable", .message = std::move(sentence)});
    }
  }
  if (const auto problem = dispatcher.problem_of(cluster.id); problem && stored.spec) {
    result.errors.push_back({.code = "ClusterUnusable", .message = *problem});
  }
  return result;
}

resources::Job Service::Work::shown(const catalog::Job& job, const resources::JobName& name) const {
  resources::Job result;
  result.name = name;
  result.uuid = job.uuid;
  const auto stored = stored_spec(job);
  if (stored.spec) result.spec = *stored.spec;
  result.creation_time = job.created;
  result.provisioning_state = job.provisioning_state;
  result.provisioning_state_transition_time = job.provisioning_changed;
  result.execution_state = job.execution_state;
  result.execution_state_transition_time = job.execution_changed;
  result.execution_info = {.start_time = job.start, .end_time = job.end, .exit_code = job.exit_code};
  if (job.error) result.execution_info.errors.push_back(*job.error);
  if (!stored.spec) result.execution_info.errors.push_back({.code = kUnreadableJob, .message = stored.problem});
  result.attempts = job.attempts;
  if (job.execution_state == resources::ExecutionState::kQueued) result.retry_time = job.retry;
  result.submitter = job.submitter;
  result.account = job.account;
  result.job_output_directory_path_segment = path_segment(options, name, job.uuid);
  return result;
}

void Service::Work::require_finished(const catalog::JobFilter& filter, const std::string& code,
                                     const std::string& what) {
  for (const auto& [state, count] : ledger.catalog.jobs().count(filter)) {
    if (resources::is_finished(state) || count == 0) continue;
    throw resources::ServiceError(resources::ServiceError::Kind::kConflict, code,
                                  fmt::format("{} has jobs that have not finished ({} {}); terminate them first", what,
                                              count, resources::name(state)));
  }
}

catalog::PageRequest kept(const resources::PageRequest& page) {
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
