#include "gyre/jobs/catalog/clusters.h"

#include "gyre/jobs/catalog/internal/secrets.h"
#include "gyre/jobs/catalog/internal/store.h"
#include "gyre/jobs/catalog/names.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::string_view kSelect =
    "SELECT id, uuid, workspace_id, name, spec, scale, created_us, provisioning_state, provisioning_us, "
    "allocation_state, "
    "allocation_us FROM clusters WHERE ";

Cluster read_cluster(const Query& row) {
  const std::string name = row.text(3);
  return {.id = row.integer(0),
          .uuid = row.text(1),
          .workspace = row.integer(2),
          .name = name.substr(0, name.find(kDeletedMark)),
          .spec = row.text(4),
          .scale = row.text(5),
          .created = row.integer(6),
          .provisioning_state = resources::state_named<ProvisioningState>(row.text(7)),
          .provisioning_changed = row.integer(8),
          .allocation_state = resources::state_named<AllocationState>(row.text(9)),
          .allocation_changed = row.integer(10)};
}

Event event_of(const Cluster& cluster, std::string subject, const Cause& cause) {
  return {.subject = std::move(subject),
          .name = cluster.name,
          .workspace = cluster.workspace,
          .cluster = cluster.id,
          .reason = cause.reason,
          .message = cause.message};
}

Id id_of(const Cluster& cluster) { return cluster.id; }

}  // namespace

Cluster Clusters::create(const NewCluster& cluster) {
  check_name(cluster.name, "cluster name");
  Transaction transaction(store_.database);
  Query workspace(store_.database, "SELECT 1 FROM workspaces WHERE id = ?1", cluster.workspace);
  if (!workspace.next()) throw not_found("workspace", cluster.workspace);
  if (find(cluster.workspace, cluster.name)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is a cluster '{}' already", cluster.name));
  }
  const TimeUs now = store_.now();
  store_.database.run(
      "INSERT INTO clusters (uuid, workspace_id, name, spec, scale, created_us, provisioning_state, provisioning_us, "
      "allocation_state, allocation_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?6, ?8, ?6)",
      new_uuid(), cluster.workspace, cluster.name, cluster.spec, cluster.scale, now, name(ProvisioningState::kCreating),
      name(AllocationState::kSteady));
  const Id id = store_.database.last_insert_id();
  keep_secrets(store_, {.cluster = id}, cluster.secrets);
  const Cluster made = get(id);
  Event event = event_of(made, "cluster", {});
  event.to = name(made.provisioning_state);
  record(store_, event);
  transaction.commit();
  return made;
}

std::optional<Cluster> Clusters::find(Id workspace, std::string_view name) {
  Query query(store_.database, std::string(kSelect) + "workspace_id = ?1 AND name = ?2", workspace, name);
  return query.next() ? std::optional(read_cluster(query)) : std::nullopt;
}

Cluster Clusters::get(Id id) {
  Query query(store_.database, std::string(kSelect) + "id = ?1", id);
  if (!query.next()) throw not_found("cluster", id);
  return read_cluster(query);
}

Page<Cluster> Clusters::list(Id workspace, const PageRequest& request) {
  Query query(store_.database, paged(std::string(kSelect) + "workspace_id = ?3 AND deleted_us IS NULL", request),
              page_start(request), page_rows(request), workspace);
  return read_page<Cluster>(query, request, read_cluster, id_of);
}

Page<Cluster> Clusters::list_all(const PageRequest& request) {
  Query query(store_.database, paged(std::string(kSelect) + "deleted_us IS NULL", request), page_start(request),
              page_rows(request));
  return read_page<Cluster>(query, request, read_cluster, id_of);
}

std::vector<Cluster> Clusters::deleting() {
  Query query(store_.database,
              std::string(kSelect) + "provisioning_state = 'deleting' AND deleted_us IS NULL ORDER BY id");
  std::vector<Cluster> found;
  while (query.next()) found.push_back(read_cluster(query));
  return found;
}

void Clusters::set_scale(Id id, const std::string& scale, const Cause& cause) {
  Transaction transaction(store_.database);
  const Cluster cluster = get(id);
  if (cluster.provisioning_state == ProvisioningState::kDeleting) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("cluster '{}' is being deleted", cluster.name));
  }
  store_.database.run("UPDATE clusters SET scale = ?2 WHERE id = ?1", id, scale);
  record(store_, event_of(cluster, "cluster", cause));
  transaction.commit();
}

namespace {

/// A change of one of its two states: `event` lacks these. False where there is nothing to change.
template <typename State>
bool change_state(Store& store, const Cluster& cluster, State from, State to, const std::string& column, Event event) {
  if (from == to) return false;
  if (!may_change(from, to)) throw illegal_change("cluster", cluster.name, name(from), name(to));
  store.database.run(fmt::format("UPDATE clusters SET {0}_state = ?2, {0}_us = ?3 WHERE id = ?1", column), cluster.id,
                     name(to), store.now());
  event.from = name(from);
  event.to = name(to);
  record(store, event);
  return true;
}

}  // namespace

void Clusters::change(Id id, ProvisioningState to, const Cause& cause) {
  Transaction transaction(store_.database);
  const Cluster cluster = get(id);
  change_state(store_, cluster, cluster.provisioning_state, to, "provisioning", event_of(cluster, "cluster", cause));
  transaction.commit();
}

void Clusters::change(Id id, AllocationState to, const Cause& cause) {
  Transaction transaction(store_.database);
  const Cluster cluster = get(id);
  change_state(store_, cluster, cluster.allocation_state, to, "allocation", event_of(cluster, "allocation", cause));
  transaction.commit();
}

void Clusters::remove(Id id) {
  Transaction transaction(store_.database);
  const Cluster cluster = get(id);
  if (cluster.provisioning_state != ProvisioningState::kDeleting) {
    throw illegal_change("cluster", cluster.name, name(cluster.provisioning_state), "deleted");
  }
  Query used(store_.database,
             "SELECT 1 FROM nodes WHERE cluster_id = ?1 UNION ALL SELECT 1 FROM jobs WHERE cluster_id = ?1 AND "
             "execution_state IN ('queued', 'running', 'terminating') LIMIT 1",
             id);
  if (used.next()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cluster '{}' still has nodes or jobs that have not finished", cluster.name));
  }
  Query remembered(store_.database, "SELECT 1 FROM jobs WHERE cluster_id = ?1 LIMIT 1", id);
  if (remembered.next()) {
    store_.database.run("DELETE FROM secrets WHERE cluster_id = ?1", id);
    store_.database.run("UPDATE clusters SET deleted_us = ?2, name = ?3 WHERE id = ?1", id, store_.now(),
                        deleted_name(cluster.name, id));
  } else {
    store_.database.run("DELETE FROM clusters WHERE id = ?1", id);
  }
  Event event = event_of(cluster, "cluster", {});
  event.from = name(cluster.provisioning_state);
  record(store_, event);
  transaction.commit();
}

std::vector<Secret> Clusters::secrets(Id id) { return read_secrets(store_, {.cluster = get(id).id}); }

}  // namespace gyre::jobs::catalog
