#include "gyre/jobs/service/internal/ledger.h"

#include <fmt/format.h>

#include <optional>

#include "gyre/jobs/api/errors.h"

namespace gyre::jobs::service {

namespace {

/// "JobNotFound", "there is no job 'x' …".
api::ServiceError not_found(const std::string& kind, const std::string& what, const std::string& name) {
  return {api::ServiceError::Kind::kNotFound, kind + "NotFound", fmt::format("there is no {} '{}'", what, name), name};
}

/// The name of `id`, where the page has it.
template <typename Item>
std::optional<std::string> name_in(const catalog::Page<Item>& page, catalog::Id id) {
  for (const Item& item : page.items) {
    if (item.id == id) return item.name;
  }
  if (!page.next) throw Error(ErrorCode::kNotFound, fmt::format("the catalog has no number {}", id));
  return std::nullopt;
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

std::string Ledger::workspace_name(catalog::Id id) {
  for (catalog::PageRequest request{.limit = catalog::kLongestPage};;) {
    const auto page = catalog.workspaces().list(request);
    if (auto name = name_in(page, id)) return *name;
    request.after = *page.next;
  }
}

std::string Ledger::experiment_name(catalog::Id workspace, catalog::Id id) {
  for (catalog::PageRequest request{.limit = catalog::kLongestPage};;) {
    const auto page = catalog.experiments().list(workspace, request);
    if (auto name = name_in(page, id)) return *name;
    request.after = *page.next;
  }
}

}  // namespace gyre::jobs::service
