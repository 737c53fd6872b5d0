#include "gyre/jobs/catalog/workspaces.h"

#include "gyre/jobs/catalog/internal/store.h"
#include "gyre/jobs/catalog/names.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::string_view kSelectWorkspace =
    "SELECT id, name, location, created_us, core_quota, low_priority_core_quota FROM workspaces WHERE ";
constexpr std::string_view kSelectExperiment = "SELECT id, workspace_id, name, created_us FROM experiments WHERE ";

Workspace read_workspace(const Query& row) {
  return {.id = row.integer(0),
          .name = row.text(1),
          .location = row.text(2),
          .created = row.integer(3),
          .quotas = {.cores = row.maybe_integer(4), .low_priority_cores = row.maybe_integer(5)}};
}

Experiment read_experiment(const Query& row) {
  return {.id = row.integer(0), .workspace = row.integer(1), .name = row.text(2), .created = row.integer(3)};
}

bool has_row(Database& database, std::string_view sql, Id id) {
  Query query(database, sql, id);
  return query.next();
}

}  // namespace

Workspace Workspaces::create(const std::string& name, const std::string& location) {
  check_name(name, "workspace name");
  Transaction transaction(store_.database);
  if (find(name)) throw Error(ErrorCode::kInvalidArgument, fmt::format("there is a workspace '{}' already", name));
  Workspace made{.name = name, .location = location, .created = store_.now()};
  store_.database.run("INSERT INTO workspaces (name, location, created_us) VALUES (?1, ?2, ?3)", name, location,
                      made.created);
  made.id = store_.database.last_insert_id();
  record(store_, {.subject = "workspace", .name = name, .workspace = made.id, .to = "succeeded"});
  transaction.commit();
  return made;
}

std::optional<Workspace> Workspaces::find(std::string_view name) {
  Query query(store_.database, std::string(kSelectWorkspace) + "name = ?1", name);
  return query.next() ? std::optional(read_workspace(query)) : std::nullopt;
}

Workspace Workspaces::get(Id id) {
  Query query(store_.database, std::string(kSelectWorkspace) + "id = ?1", id);
  if (!query.next()) throw not_found("workspace", id);
  return read_workspace(query);
}

void Workspaces::set_quotas(Id id, const Quotas& quotas, const Cause& cause) {
  Transaction transaction(store_.database);
  const Workspace workspace = get(id);
  if (workspace.quotas != quotas) {
    store_.database.run("UPDATE workspaces SET core_quota = ?2, low_priority_core_quota = ?3 WHERE id = ?1", id,
                        quotas.cores, quotas.low_priority_cores);
    record(store_, {.subject = "workspace",
                    .name = workspace.name,
                    .workspace = id,
                    .from = "succeeded",
                    .to = "succeeded",
                    .reason = cause.reason,
                    .message = cause.message});
  }
  transaction.commit();
}

Page<Workspace> Workspaces::list(const PageRequest& request) {
  Query query(store_.database, paged(std::string(kSelectWorkspace) + "TRUE", request), page_start(request),
              page_rows(request));
  return read_page<Workspace>(query, request, read_workspace, [](const Workspace& one) { return one.id; });
}

void Workspaces::remove(Id id) {
  Transaction transaction(store_.database);
  const std::string name = get(id).name;
  if (has_row(store_.database, "SELECT 1 FROM experiments WHERE workspace_id = ?1 LIMIT 1", id) ||
      has_row(store_.database, "SELECT 1 FROM clusters WHERE workspace_id = ?1 AND deleted_us IS NULL LIMIT 1", id)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("workspace '{}' still has experiments or clusters; delete those first", name));
  }
  // Deleted clusters that jobs of other workspaces ran on are kept as long as those.
  store_.database.run(
      "UPDATE clusters SET workspace_id = (SELECT workspace_id FROM jobs WHERE cluster_id = clusters.id LIMIT 1) "
      "WHERE workspace_id = ?1",
      id);
  store_.database.run("DELETE FROM workspaces WHERE id = ?1", id);
  record(store_, {.subject = "workspace", .name = name, .workspace = id, .from = "succeeded"});
  transaction.commit();
}

Experiment Experiments::create(Id workspace, const std::string& name) {
  check_name(name, "experiment name");
  Transaction transaction(store_.database);
  if (!has_row(store_.database, "SELECT 1 FROM workspaces WHERE id = ?1", workspace)) {
    throw not_found("workspace", workspace);
  }
  if (find(workspace, name)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is an experiment '{}' already", name));
  }
  Experiment made{.workspace = workspace, .name = name, .created = store_.now()};
  store_.database.run("INSERT INTO experiments (workspace_id, name, created_us) VALUES (?1, ?2, ?3)", workspace, name,
                      made.created);
  made.id = store_.database.last_insert_id();
  record(store_, {.subject = "experiment", .name = name, .workspace = workspace, .to = "succeeded"});
  transaction.commit();
  return made;
}

std::optional<Experiment> Experiments::find(Id workspace, std::string_view name) {
  Query query(store_.database, std::string(kSelectExperiment) + "workspace_id = ?1 AND name = ?2", workspace, name);
  return query.next() ? std::optional(read_experiment(query)) : std::nullopt;
}

Experiment Experiments::get(Id id) {
  Query query(store_.database, std::string(kSelectExperiment) + "id = ?1", id);
  if (!query.next()) throw not_found("experiment", id);
  return read_experiment(query);
}

Page<Experiment> Experiments::list(Id workspace, const PageRequest& request) {
  Query query(store_.database, paged(std::string(kSelectExperiment) + "workspace_id = ?3", request),
              page_start(request), page_rows(request), workspace);
  return read_page<Experiment>(query, request, read_experiment, [](const Experiment& one) { return one.id; });
}

void Experiments::remove(Id id) {
  Transaction transaction(store_.database);
  const Experiment gone = get(id);
  if (has_row(store_.database, "SELECT 1 FROM jobs WHERE experiment_id = ?1 LIMIT 1", id)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("experiment '{}' still has jobs; delete those first", gone.name));
  }
  store_.database.run("DELETE FROM experiments WHERE id = ?1", id);
  record(store_, {.subject = "experiment", .name = gone.name, .workspace = gone.workspace, .from = "succeeded"});
  transaction.commit();
}

}  // namespace gyre::jobs::catalog
