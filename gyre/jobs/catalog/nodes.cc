#include "gyre/jobs/catalog/nodes.h"

#include "gyre/jobs/catalog/internal/changes.h"
#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::string_view kSelect =
    "SELECT id, cluster_id, name, state, state_us, attempt_id, problem FROM nodes WHERE ";

Node read_node(const Query& row) {
  return {.id = row.integer(0),
          .cluster = row.integer(1),
          .name = row.text(2),
          .state = resources::state_named<NodeState>(row.text(3)),
          .state_changed = row.integer(4),
          .attempt = row.maybe_text(5),
          .problem = row.text(6)};
}

}  // namespace

Node Nodes::plan(Id cluster, const std::string& name, const Cause& cause) {
  Transaction transaction(store_.database);
  Query home(store_.database, "SELECT provisioning_state FROM clusters WHERE id = ?1", cluster);
  if (!home.next()) throw not_found("cluster", cluster);
  if (home.text(0) == resources::name(ProvisioningState::kDeleting)) {
    throw Error(ErrorCode::kInvalidArgument, "the cluster is being deleted; it gets no new nodes");
  }
  if (name.empty() || find(name)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a name for a new node", name));
  }
  Node made{.cluster = cluster, .name = name, .state_changed = store_.now()};
  store_.database.run("INSERT INTO nodes (cluster_id, name, state, state_us, problem) VALUES (?1, ?2, ?3, ?4, '')",
                      cluster, name, resources::name(made.state), made.state_changed);
  made.id = store_.database.last_insert_id();
  record(store_, {.subject = "node",
                  .name = name,
                  .cluster = cluster,
                  .node = made.id,
                  .to = std::string(resources::name(made.state)),
                  .reason = cause.reason,
                  .message = cause.message});
  transaction.commit();
  return made;
}

Node Nodes::adopt(Id cluster, const AttemptNode& found, const Cause& cause) {
  if (auto known = find(found.name)) return *std::move(known);
  Transaction transaction(store_.database);
  Query taken(store_.database, "SELECT 1 FROM nodes WHERE id = ?1", found.id);
  const auto number = found.id > 0 && !taken.next() ? std::optional(found.id) : std::nullopt;
  const Node made{.cluster = cluster, .name = found.name, .state = NodeState::kIdle, .state_changed = store_.now()};
  store_.database.run(
      "INSERT INTO nodes (id, cluster_id, name, state, state_us, problem) VALUES (?1, ?2, ?3, ?4, ?5, '')", number,
      cluster, made.name, resources::name(made.state), made.state_changed);
  const Id id = store_.database.last_insert_id();
  record(store_, {.subject = "node",
                  .name = made.name,
                  .cluster = cluster,
                  .node = id,
                  .to = std::string(resources::name(made.state)),
                  .reason = cause.reason,
                  .message = cause.message});
  transaction.commit();
  return get(id);
}

Node Nodes::get(Id id) {
  Query query(store_.database, std::string(kSelect) + "id = ?1", id);
  if (!query.next()) throw not_found("node", id);
  return read_node(query);
}

std::optional<Node> Nodes::find(std::string_view name) {
  Query query(store_.database, std::string(kSelect) + "name = ?1", name);
  return query.next() ? std::optional(read_node(query)) : std::nullopt;
}

std::vector<Node> Nodes::list(std::optional<Id> cluster) {
  Query query(store_.database,
              std::string(kSelect) + (cluster ? "cluster_id = ?1 ORDER BY id" : "?1 IS NULL ORDER BY id"), cluster);
  std::vector<Node> found;
  while (query.next()) found.push_back(read_node(query));
  return found;
}

void Nodes::change(Id id, NodeState to, const Cause& cause) {
  Transaction transaction(store_.database);
  const Node node = get(id);
  if (node.state != to) {
    const bool by_attempt = to == NodeState::kRunning || (node.state == NodeState::kRunning && to != NodeState::kLost);
    if (by_attempt) throw illegal_change("node", node.name, name(node.state), name(to));
    if (to == NodeState::kPreparing && node.attempt) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("node '{}' cannot come back before attempt {} has ended", node.name, *node.attempt));
    }
    change_node(store_, node, to, node.attempt, cause);
  }
  transaction.commit();
}

void Nodes::remove(Id id, const Cause& cause) {
  Transaction transaction(store_.database);
  const Node node = get(id);
  const bool may_go =
      node.state == NodeState::kLeaving || node.state == NodeState::kLost || node.state == NodeState::kAllocating;
  if (!may_go || node.attempt) throw illegal_change("node", node.name, name(node.state), "gone");
  store_.database.run("DELETE FROM nodes WHERE id = ?1", id);
  record(store_, {.subject = "node",
                  .name = node.name,
                  .cluster = node.cluster,
                  .node = node.id,
                  .from = std::string(name(node.state)),
                  .reason = cause.reason,
                  .message = cause.message});
  transaction.commit();
}

}  // namespace gyre::jobs::catalog
