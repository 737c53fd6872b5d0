#include "gyre/jobs/service/internal/ledger.h"

#include <fmt/format.h>

#include "gyre/jobs/api/errors.h"

namespace gyre::jobs::service {

namespace {

/// "JobNotFound", "there is no job 'x' …".
api::ServiceError not_found(const std::string& kind, const std::string& what, const std::string& name) {
  return {api::ServiceError::Kind::kNotFound, kind + "NotFound", fmt::format("there is no {} '{}'", what, name), name};
}

}  // namespace

catalog::Workspace Ledger::workspace(const std::string& name) {
  if (auto found = catalog.workspaces().find(name)) return *found;
  throw not_found("Workspace", "workspace", name);
}

catalog::Cluster Ledger::cluster(const api::ClusterName& name) {
  if (auto found = catalog.clusters().find(workspace(name.workspace).id, name.cluster)) return *found;
  throw not_found("Cluster", "cluster", name.cluster);
}

catalog::Experiment Ledger::experiment(const api::ExperimentName& name) {
  if (auto found = catalog.experiments().find(workspace(name.workspace).id, name.experiment)) return *found;
  throw not_found("Experiment", "experiment", name.experiment);
}

catalog::Job Ledger::job(const api::JobName& name) {
  if (auto found = catalog.jobs().find(experiment({name.workspace, name.experiment}).id, name.job)) return *found;
  throw not_found("Job", "job", name.job);
}

catalog::User Ledger::user(const std::string& name) {
  if (auto found = catalog.users().find(name)) return *found;
  throw not_found("User", "user", name);
}

catalog::EventFilter Ledger::filter(const api::EventScope& scope) {
  if (!scope.job.empty()) return {.job = job({scope.workspace, scope.experiment, scope.job}).id};
  if (!scope.cluster.empty()) return {.cluster = cluster({scope.workspace, scope.cluster}).id};
  return {.workspace = workspace(scope.workspace).id};
}

void Ledger::remove_experiment(catalog::Id id) {
  const auto some = [&]() GYRE_REQUIRES(mutex) {
    return catalog.jobs().list({.experiment = id}, {.limit = catalog::kLongestPage}).items;
  };
  for (auto jobs = some(); !jobs.empty(); jobs = some()) {
    for (const catalog::Job& job : jobs) {
      catalog.jobs().start_deletion(job.id, {"experimentDeleted", ""});
      catalog.jobs().remove(job.id);
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
