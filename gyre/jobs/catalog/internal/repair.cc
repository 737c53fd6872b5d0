#include "gyre/jobs/catalog/internal/repair.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/jobs/catalog/names.h"
#include "gyre/jobs/resources/states.h"

namespace gyre::jobs::catalog {
namespace {

constexpr const char* kReason = "repaired";
/// Of the workspace and the experiments for what belongs nowhere any more.
constexpr const char* kRecovered = "recovered";

/// A column with names of states. The SQL expressions are about a row of its table.
struct StateColumn {
  const char* table = "";
  const char* column = "";
  std::vector<std::string_view> states{};
  const char* likeliest = "";
  const char* subject = "";  ///< Of its event.
  const char* name = "";
  const char* workspace = "NULL";
  const char* cluster = "NULL";
  const char* job = "NULL";
  const char* attempt = "NULL";
  const char* node = "NULL";
};

/// Where the rows of a table belong, for their events.
StateColumn rows_of_attempts() {
  return {.table = "attempts",
          .name = "(SELECT name FROM jobs WHERE jobs.id = attempts.job_id)",
          .job = "job_id",
          .attempt = "number"};
}
StateColumn rows_of_clusters() {
  return {.table = "clusters", .name = "name", .workspace = "workspace_id", .cluster = "id"};
}
StateColumn rows_of_jobs() {
  return {.table = "jobs", .name = "name", .workspace = "workspace_id", .cluster = "cluster_id", .job = "id"};
}

StateColumn column_of(StateColumn rows, const char* subject, const char* column, std::vector<std::string_view> states,
                      const char* likeliest) {
  rows.subject = subject;
  rows.column = column;
  rows.states = std::move(states);
  rows.likeliest = likeliest;
  return rows;
}

/// In the order in which they are repaired: the likeliest value of one may depend on those before it.
std::vector<StateColumn> state_columns() {
  return {
      column_of(rows_of_attempts(), "attempt", "state", resources::state_names<AttemptState>(),
                "CASE WHEN ended_us IS NOT NULL THEN 'ended' WHEN started_us IS NOT NULL THEN 'started' "
                "ELSE 'planned' END"),
      column_of(rows_of_attempts(), "attempt", "end_intent", resources::state_names<EndIntent>(),
                "CASE WHEN state = 'ending' THEN 'requeue' ELSE 'none' END"),
      column_of(rows_of_clusters(), "cluster", "provisioning_state", resources::state_names<ProvisioningState>(),
                "CASE WHEN deleted_us IS NOT NULL THEN 'deleting' ELSE 'succeeded' END"),
      column_of(rows_of_clusters(), "allocation", "allocation_state", resources::state_names<AllocationState>(),
                "'steady'"),
      {.table = "nodes",
       .column = "state",
       .states = resources::state_names<NodeState>(),
       .likeliest = "CASE WHEN EXISTS (SELECT 1 FROM attempts WHERE attempts.id = attempt_id AND attempts.state <> "
                    "'ended') THEN 'running' ELSE 'lost' END",
       .subject = "node",
       .name = "name",
       .cluster = "cluster_id",
       .node = "id"},
      column_of(rows_of_jobs(), "jobProvisioning", "provisioning_state", resources::state_names<ProvisioningState>(),
                "'succeeded'"),
      column_of(rows_of_jobs(), "job", "execution_state", resources::state_names<ExecutionState>(),
                "CASE WHEN EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND state <> 'ended' AND end_intent = "
                "'terminate') THEN 'terminating' "
                "WHEN EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND state <> 'ended' AND started_us IS NOT "
                "NULL) THEN 'running' "
                "WHEN EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id AND state <> 'ended') THEN 'queued' "
                "WHEN end_us IS NULL THEN 'queued' "
                "WHEN error_code IS NULL AND coalesce(exit_code, 0) = 0 THEN 'succeeded' ELSE 'failed' END"),
  };
}

/// A table, and the numbers by which others refer to its rows.
struct Numbered {
  const char* kind;
  const char* table;
  const char* references;
};

constexpr Numbered kNumbered[] = {
    {.kind = "workspace",
     .table = "workspaces",
     .references = "SELECT workspace_id AS n FROM experiments UNION SELECT workspace_id FROM clusters UNION "
                   "SELECT workspace_id FROM jobs UNION SELECT workspace_id FROM members"},
    {.kind = "experiment", .table = "experiments", .references = "SELECT experiment_id AS n FROM jobs"},
    {.kind = "cluster",
     .table = "clusters",
     .references = "SELECT cluster_id AS n FROM jobs UNION SELECT cluster_id FROM nodes"},
    {.kind = "job", .table = "jobs", .references = "SELECT job_id AS n FROM attempts"},
    {.kind = "node", .table = "nodes", .references = "SELECT NULL AS n"},
    {.kind = "user", .table = "users", .references = "SELECT user_id AS n FROM members"},
};

/// No row comes this far. SQLite gives new rows larger numbers than any that is there, and none are left after the
/// largest.
constexpr Id kLargestNumber = Id{1} << 53;

/// For a message, which has to be UTF-8, and short.
std::string shown(const std::string& damaged) {
  constexpr std::size_t kLongest = 80;
  std::string text = damaged.substr(0, kLongest);
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

class Repair {
 public:
  Repair(Store& store, const std::function<void(const std::string&)>& repaired)
      : store_(store), database_(store.database), repaired_(repaired) {}

  void run() {
    repair_numbers_of_events();  // Those of what is repaired come behind them.
    for (const Numbered& table : kNumbered) repair_numbers(table);
    for (const char* kind : {"workspace", "experiment", "cluster", "job", "node"}) repair_names(kind);
    repair_places();
    for (const StateColumn& column : state_columns()) repair_states(column);
  }

 private:
  void note(Event event, const std::string& sentence) {
    event.reason = kReason;
    event.message = sentence;
    record(store_, event);
    if (repaired_) repaired_(sentence);
  }

  void repair_states(const StateColumn& column) {
    struct Row {
      Id row;
      std::string from;
      Event event;
    };
    std::vector<Row> rows;
    {
      const std::string known = fmt::format("'{}'", fmt::join(column.states, "', '"));
      Query query(database_, fmt::format("SELECT rowid, {}, {}, {}, {}, {}, {}, {}, {} FROM {} WHERE {} NOT IN ({})",
                                         column.column, column.likeliest, column.name, column.workspace, column.cluster,
                                         column.job, column.attempt, column.node, column.table, column.column, known));
      while (query.next()) {
        Row row{.row = query.integer(0), .from = query.text(1), .event = {}};
        row.event = {.subject = column.subject,
                     .name = query.maybe_text(3).value_or(""),
                     .workspace = query.maybe_integer(4),
                     .cluster = query.maybe_integer(5),
                     .job = query.maybe_integer(6),
                     .node = query.maybe_integer(8),
                     .to = query.text(2)};
        if (!query.is_null(7)) row.event.attempt = static_cast<int>(query.integer(7));
        rows.push_back(std::move(row));
      }
    }
    for (Row& row : rows) {
      database_.run(fmt::format("UPDATE {} SET {} = ?2 WHERE rowid = ?1", column.table, column.column), row.row,
                    row.event.to);
      const bool of_attempt = row.event.attempt.has_value();
      const std::string sentence =
          fmt::format("the {} of {}{} '{}' was damaged ('{}') and is '{}' now", column.column,
                      of_attempt ? fmt::format("attempt {} of ", *row.event.attempt) : "",
                      of_attempt || row.event.job ? "job" : (row.event.node ? "node" : "cluster"), row.event.name,
                      row.from, row.event.to);
      note(std::move(row.event), sentence);
    }
  }

  static Event event_of(const char* kind, const std::string& name, Id id) {
    Event event{.subject = kind, .name = name};
    const std::string_view subject = kind;
    if (subject == "workspace") event.workspace = id;
    if (subject == "cluster") event.cluster = id;
    if (subject == "job") event.job = id;
    if (subject == "node") event.node = id;
    return event;
  }

  /// The number by which others refer to it, if that is the only one that there is no row of; else a new one.
  void repair_numbers(const Numbered& table) {
    std::vector<std::pair<Id, std::string>> rows;
    {
      Query query(database_,
                  fmt::format("SELECT id, name FROM {} WHERE id < 1 OR id > {}", table.table, kLargestNumber));
      while (query.next()) rows.emplace_back(query.integer(0), query.text(1));
    }
    for (const auto& [from, name] : rows) {
      const std::string missing =
          fmt::format("SELECT n FROM ({}) WHERE n BETWEEN 1 AND {} AND n NOT IN (SELECT id FROM {})", table.references,
                      kLargestNumber, table.table);
      Query query(database_, fmt::format("SELECT CASE WHEN (SELECT count(*) FROM ({0})) = 1 THEN ({0}) ELSE (SELECT "
                                         "coalesce(max(id), 0) + 1 FROM {1} WHERE id BETWEEN 1 AND {2}) END",
                                         missing, table.table, kLargestNumber - 1));
      query.next();
      const Id to = query.integer(0);
      try {
        database_.run(fmt::format("UPDATE {} SET id = ?2 WHERE id = ?1", table.table), from, to);
      } catch (const Error&) {
        continue;  // Others refer to it as it is.
      }
      note(event_of(table.kind, shown(name), to),
           fmt::format("the number of {} '{}' was damaged ({}) and is {} now", table.kind, shown(name), from, to));
    }
  }

  void repair_numbers_of_events() {
    database_.run("UPDATE sqlite_sequence SET seq = 0 WHERE seq > ?1", kLargestNumber);
    database_.run("DELETE FROM events WHERE sequence > ?1", kLargestNumber);
  }

  /// As its attempts know it.
  std::string name_of_node(Id id) {
    Query query(database_, "SELECT node_name FROM attempt_nodes WHERE node_id = ?1 AND node_name GLOB 'node-*'", id);
    return query.next() ? query.text(0) : fmt::format("node-{}", id);
  }

  /// Nobody could name it in a command, and no node program could start with it. Behind those of deleted clusters is
  /// their mark.
  void repair_names(const char* kind) {
    std::vector<std::pair<Id, std::string>> rows;
    {
      Query query(database_,
                  fmt::format("SELECT id, name FROM {0}s WHERE (name = '' OR length(name) > {1} OR name GLOB "
                              "'*[^-A-Za-z0-9_]*') AND name NOT GLOB '*{2}' || id",
                              kind, kLongestName, kDeletedMark));
      while (query.next()) rows.emplace_back(query.integer(0), query.text(1));
    }
    for (const auto& [id, from] : rows) {
      std::string to = std::string_view(kind) == "node" ? name_of_node(id) : fmt::format("{}-{}", kind, id);
      const std::string sql = fmt::format("UPDATE {}s SET name = ?2 WHERE id = ?1", kind);
      try {
        database_.run(sql, id, to);
      } catch (const Error&) {
        to = fmt::format("{}-{}", kind, new_uuid());  // Something of that name is there.
        database_.run(sql, id, to);
      }
      note(event_of(kind, to, id),
           fmt::format("the name of {} {} was damaged ('{}') and is '{}' now", kind, id, shown(from), to));
    }
  }

  /// Numbers of workspaces, experiments and clusters.
  void repair_places() {
    constexpr const char* kNoWorkspace = "workspace_id NOT IN (SELECT id FROM workspaces)";
    move("experiment", "experiments", kNoWorkspace, "workspace_id", [&](Id) { return workspace(); });
    move("cluster", "clusters", kNoWorkspace, "workspace_id", [&](Id) { return workspace(); });
    move("job", "jobs", "experiment_id NOT IN (SELECT id FROM experiments)", "experiment_id",
         [&](Id job) { return experiment(workspace_of(job)); });
    move("job", "jobs",
         "workspace_id <> (SELECT experiments.workspace_id FROM experiments WHERE experiments.id = experiment_id)",
         "workspace_id", [&](Id job) { return workspace_of_experiment(job); });
    move("job", "jobs", "cluster_id NOT IN (SELECT id FROM clusters)", "cluster_id",
         [&](Id job) { return deleted_cluster(job); });
    drop_nodes_without_cluster();
  }

  /// Nobody could use them.
  void drop_nodes_without_cluster() {
    constexpr const char* kCondition = "cluster_id NOT IN (SELECT id FROM clusters)";
    std::vector<Event> events;
    {
      Query query(database_, fmt::format("SELECT id, name, state FROM nodes WHERE {}", kCondition));
      while (query.next())
        events.push_back({.subject = "node", .name = query.text(1), .node = query.integer(0), .from = query.text(2)});
    }
    for (Event& event : events) {
      database_.run("DELETE FROM nodes WHERE id = ?1", *event.node);
      const std::string sentence = fmt::format("the cluster_id of node '{}' was damaged; the node is gone", event.name);
      note(std::move(event), sentence);
    }
  }

  template <typename Place>
  void move(const char* subject, const char* table, const char* condition, const char* column, const Place& place) {
    struct Row {
      Id id;
      std::string name;
      Id from;
    };
    std::vector<Row> rows;
    {
      Query query(database_, fmt::format("SELECT id, name, {} FROM {} WHERE {}", column, table, condition));
      while (query.next()) rows.push_back({query.integer(0), query.text(1), query.integer(2)});
    }
    for (const Row& row : rows) {
      const Id to = place(row.id);
      std::string name = row.name;
      try {
        database_.run(fmt::format("UPDATE {} SET {} = ?2 WHERE id = ?1", table, column), row.id, to);
      } catch (const Error&) {
        // Something of that name is there.
        name = fmt::format("{}-{}", row.name.substr(0, kLongestOldName), row.id);
        database_.run(fmt::format("UPDATE {} SET {} = ?2, name = ?3 WHERE id = ?1", table, column), row.id, to, name);
      }
      Event event = event_of(subject, name, row.id);
      if (event.job) event.workspace = workspace_of(row.id);
      note(std::move(event),
           fmt::format("the {} of {} '{}' was damaged ({}) and is {} now{}", column, subject, row.name, row.from, to,
                       name == row.name ? "" : fmt::format("; its name is '{}'", name)));
    }
  }

  std::optional<Id> number(const std::string& sql, Id id) {
    Query query(database_, sql, id);
    return query.next() ? std::optional(query.integer(0)) : std::nullopt;
  }
  std::optional<Id> workspace_of(Id job) {
    return number("SELECT id FROM workspaces WHERE id = (SELECT workspace_id FROM jobs WHERE id = ?1)", job);
  }
  Id workspace_of_experiment(Id job) {
    return *number("SELECT workspace_id FROM experiments WHERE id = (SELECT experiment_id FROM jobs WHERE id = ?1)",
                   job);
  }

  Id workspace() {
    database_.run("INSERT INTO workspaces (name, location, created_us) VALUES (?1, '', ?2) ON CONFLICT DO NOTHING",
                  kRecovered, store_.now());
    Query query(database_, "SELECT id FROM workspaces WHERE name = ?1", kRecovered);
    query.next();
    return query.integer(0);
  }

  Id experiment(std::optional<Id> of_workspace) {
    const Id in = of_workspace ? *of_workspace : workspace();
    database_.run("INSERT INTO experiments (workspace_id, name, created_us) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                  in, kRecovered, store_.now());
    Query query(database_, "SELECT id FROM experiments WHERE workspace_id = ?1 AND name = ?2", in, kRecovered);
    query.next();
    return query.integer(0);
  }

  /// As the memory of a cluster that is gone. The job cannot run any more.
  Id deleted_cluster(Id job) {
    constexpr const char* kWhy = "the record of this job was damaged: nobody knows its cluster any more";
    const TimeUs now = store_.now();
    database_.run("UPDATE attempts SET state = 'ended', ended_us = coalesce(ended_us, ?2) WHERE job_id = ?1", job, now);
    database_.run(
        "UPDATE jobs SET execution_state = 'failed', execution_us = ?2, end_us = coalesce(end_us, ?2), error_code = "
        "'InternalError', error_message = ?3, error_details = '' WHERE id = ?1 AND execution_state <> 'succeeded'",
        job, now, kWhy);
    database_.run(
        "INSERT INTO clusters (uuid, workspace_id, name, spec, scale, created_us, provisioning_state, provisioning_us, "
        "allocation_state, allocation_us, deleted_us) VALUES (?1, ?2, ?1, '{}', '{}', ?3, 'deleting', ?3, 'steady', "
        "?3, ?3)",
        new_uuid(), *workspace_of(job), now);
    const Id id = database_.last_insert_id();
    database_.run("UPDATE clusters SET name = ?2 WHERE id = ?1", id, deleted_name(kRecovered, id));
    return id;
  }

  static constexpr std::size_t kLongestOldName = 40;
  static constexpr std::size_t kLongestName = 64;

  Store& store_;
  Database& database_;
  const std::function<void(const std::string&)>& repaired_;
};

}  // namespace

void repair(Store& store, const std::function<void(const std::string&)>& repaired) {
  Transaction transaction(store.database);
  Repair(store, repaired).run();
  transaction.commit();
}

}  // namespace gyre::jobs::catalog
