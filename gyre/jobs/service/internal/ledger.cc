#include "gyre/jobs/service/internal/ledger.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "gyre/cli/suggest.h"
#include "gyre/jobs/resources/service_error.h"

namespace gyre::jobs::service {

namespace {

/// In the folder of logs; no job's uuid.
constexpr const char* kRemoved = ".removed";

/// "JobNotFound", "there is no job 'x'; did you mean 'y'?".
resources::ServiceError not_found(const std::string& kind, const std::string& what, const std::string& name,
                                  const std::vector<std::string>& known = {}) {
  const auto meant = cli::nearest(name, known);
  return {resources::ServiceError::Kind::kNotFound, kind + "NotFound",
          fmt::format("there is no {} '{}'{}", what, name, meant ? fmt::format("; did you mean '{}'?", *meant) : ""),
          name};
}

/// Of the first so many, a similar one is suggested.
constexpr catalog::PageRequest kLookedThrough{.limit = catalog::kLongestPage};

template <typename Kept>
std::vector<std::string> names_of(const catalog::Page<Kept>& page) {
  std::vector<std::string> names;
  for (const Kept& item : page.items) names.push_back(item.name);
  return names;
}

}  // namespace

catalog::Workspace Ledger::workspace(const std::string& name) {
  if (auto found = catalog.workspaces().find(name)) return *found;
  throw not_found("Workspace", "workspace", name);
}

catalog::Cluster Ledger::cluster(const resources::ClusterName& name) {
  const catalog::Id owner = workspace(name.workspace).id;
  if (auto found = catalog.clusters().find(owner, name.cluster)) return *found;
  throw not_found("Cluster", "cluster", name.cluster, names_of(catalog.clusters().list(owner, kLookedThrough)));
}

catalog::Experiment Ledger::experiment(const resources::ExperimentName& name) {
  const catalog::Id owner = workspace(name.workspace).id;
  if (auto found = catalog.experiments().find(owner, name.experiment)) return *found;
  throw not_found("Experiment", "experiment", name.experiment,
                  names_of(catalog.experiments().list(owner, kLookedThrough)));
}

catalog::Job Ledger::job(const resources::JobName& name) {
  if (auto found = catalog.jobs().find(experiment({name.workspace, name.experiment}).id, name.job)) return *found;
  throw not_found("Job", "job", name.job);
}

catalog::User Ledger::user(const std::string& name) {
  if (auto found = catalog.users().find(name)) return *found;
  throw not_found("User", "user", name);
}

catalog::EventFilter Ledger::filter(const resources::EventScope& scope) {
  if (!scope.job.empty()) return {.job = job({scope.workspace, scope.experiment, scope.job}).id};
  if (!scope.cluster.empty()) return {.cluster = cluster({scope.workspace, scope.cluster}).id};
  return {.workspace = workspace(scope.workspace).id};
}

void Ledger::for_each_cluster(const std::function<void(const catalog::Cluster&)>& visit) {
  catalog::PageRequest request{.limit = catalog::kLongestPage};
  for (bool more = true; more;) {
    const auto page = catalog.clusters().list_all(request);
    for (const catalog::Cluster& cluster : page.items) visit(cluster);
    more = page.next.has_value();
    request.after = page.next.value_or(0);
  }
}

bool Ledger::is_inherited(const std::string& attempt) const {
  const auto found = live.find(attempt);
  return found != live.end() && found->second.inherited;
}

std::string Ledger::wait_of(catalog::Id job) const {
  for (const auto& [id, attempt] : live) {
    if (attempt.job == job && !attempt.wait.empty()) return attempt.wait;
  }
  return "";
}

void Ledger::remove_job(const catalog::Job& job) {
  catalog.jobs().remove(job.id);
  std::error_code ignored;
  if (std::filesystem::exists(logs / job.uuid, ignored)) {
    std::filesystem::create_directories(logs / kRemoved, ignored);
    std::filesystem::rename(logs / job.uuid, logs / kRemoved / job.uuid, ignored);
  }
  if (!job.code.empty() && !catalog.jobs().uses_code(job.workspace, job.code)) code.remove(job.workspace, job.code);
}

void Ledger::free_removed_logs() const {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(logs / kRemoved, ignored)) {
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

void Ledger::remove_experiment(catalog::Id id) {
  const auto some = [&]() GYRE_REQUIRES(mutex) {
    return catalog.jobs().list({.experiment = id}, {.limit = catalog::kLongestPage}).items;
  };
  for (auto jobs = some(); !jobs.empty(); jobs = some()) {
    for (const catalog::Job& job : jobs) {
      catalog.jobs().start_deletion(job.id, {"experimentDeleted", ""});
      remove_job(job);
    }
  }
  catalog.experiments().remove(id);
}

void Ledger::remove_experiments(catalog::Id workspace) {
  const auto some = [&]() GYRE_REQUIRES(mutex) { return catalog.experiments().list(workspace).items; };
  for (auto experiments = some(); !experiments.empty(); experiments = some()) {
    for (const catalog::Experiment& experiment : experiments) remove_experiment(experiment.id);
  }
}

}  // namespace gyre::jobs::service
