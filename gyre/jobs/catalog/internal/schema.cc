#include "gyre/jobs/catalog/internal/schema.h"

#include <fmt/format.h>

#include <vector>

namespace gyre::jobs::catalog {
namespace {

/// "gyre", so that nobody takes another program's file for a catalog.
constexpr std::int64_t kApplicationId = 0x67797265;

/// States are stored under their names (states.h), times as microseconds since 1970, specs as JSON without secrets.
constexpr const char* kFirstVersion = R"sql(
CREATE TABLE workspaces (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  location TEXT NOT NULL,
  created_us INTEGER NOT NULL
) STRICT;

CREATE TABLE experiments (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace_id INTEGER NOT NULL REFERENCES workspaces,
  name TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE clusters (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid TEXT NOT NULL UNIQUE,
  workspace_id INTEGER NOT NULL REFERENCES workspaces,
  name TEXT NOT NULL,
  spec TEXT NOT NULL,
  scale TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  provisioning_state TEXT NOT NULL,
  provisioning_us INTEGER NOT NULL,
  allocation_state TEXT NOT NULL,
  allocation_us INTEGER NOT NULL,
  UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid TEXT NOT NULL UNIQUE,
  workspace_id INTEGER NOT NULL REFERENCES workspaces,
  experiment_id INTEGER NOT NULL REFERENCES experiments,
  cluster_id INTEGER NOT NULL REFERENCES clusters,
  name TEXT NOT NULL,
  spec TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  provisioning_state TEXT NOT NULL,
  provisioning_us INTEGER NOT NULL,
  execution_state TEXT NOT NULL,
  execution_us INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  start_us INTEGER,
  end_us INTEGER,
  exit_code INTEGER,
  error_code TEXT,
  error_message TEXT,
  error_details TEXT,
  UNIQUE (experiment_id, name)
) STRICT;
CREATE INDEX jobs_by_workspace ON jobs (workspace_id);
CREATE INDEX jobs_by_workspace_state ON jobs (workspace_id, execution_state);
CREATE INDEX jobs_by_experiment ON jobs (experiment_id);
CREATE INDEX jobs_by_experiment_state ON jobs (experiment_id, execution_state);
CREATE INDEX jobs_by_cluster ON jobs (cluster_id);
CREATE INDEX jobs_by_cluster_state ON jobs (cluster_id, execution_state);
CREATE INDEX jobs_not_finished ON jobs (id) WHERE execution_state IN ('queued', 'running', 'terminating');
CREATE INDEX jobs_deleting ON jobs (id) WHERE provisioning_state = 'deleting';

CREATE TABLE attempts (
  id TEXT PRIMARY KEY,
  job_id INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  state TEXT NOT NULL,
  end_intent TEXT NOT NULL,
  planned_us INTEGER NOT NULL,
  started_us INTEGER,
  ended_us INTEGER,
  exit_code INTEGER,
  UNIQUE (job_id, number)
) STRICT;
CREATE INDEX attempts_not_ended ON attempts (job_id, number) WHERE state <> 'ended';

CREATE TABLE nodes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cluster_id INTEGER NOT NULL REFERENCES clusters,
  name TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL,
  state_us INTEGER NOT NULL,
  attempt_id TEXT REFERENCES attempts ON DELETE SET NULL,
  problem TEXT NOT NULL
) STRICT;
CREATE INDEX nodes_by_cluster ON nodes (cluster_id);
CREATE INDEX nodes_by_attempt ON nodes (attempt_id);

-- Which nodes an attempt was given. They are kept by name: nodes go, the record stays.
CREATE TABLE attempt_nodes (
  attempt_id TEXT NOT NULL REFERENCES attempts ON DELETE CASCADE,
  position INTEGER NOT NULL,
  node_id INTEGER NOT NULL,
  node_name TEXT NOT NULL,
  PRIMARY KEY (attempt_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE secrets (
  id INTEGER PRIMARY KEY,
  cluster_id INTEGER REFERENCES clusters ON DELETE CASCADE,
  job_id INTEGER REFERENCES jobs ON DELETE CASCADE,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  UNIQUE (cluster_id, name),
  UNIQUE (job_id, name)
) STRICT;

CREATE TABLE users (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  token_hash TEXT NOT NULL UNIQUE,
  is_administrator INTEGER NOT NULL,
  created_us INTEGER NOT NULL
) STRICT;
CREATE TABLE members (
  user_id INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
  workspace_id INTEGER NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  PRIMARY KEY (user_id, workspace_id)
) STRICT, WITHOUT ROWID;

-- No references: what happened stays true when its subject is gone. AUTOINCREMENT: no number is ever used again.
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  time_us INTEGER NOT NULL,
  subject TEXT NOT NULL,
  name TEXT NOT NULL,
  workspace_id INTEGER,
  cluster_id INTEGER,
  job_id INTEGER,
  attempt INTEGER,
  node_id INTEGER,
  from_state TEXT NOT NULL,
  to_state TEXT NOT NULL,
  reason TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_workspace ON events (workspace_id);
CREATE INDEX events_by_cluster ON events (cluster_id);
CREATE INDEX events_by_job ON events (job_id);
)sql";

/// A cluster that finished jobs ran on stays as their memory, under a name that no cluster can have. Attempts know when
/// they were planned by a clock that nobody sets. Workspaces have quotas.
constexpr const char* kSecondVersion = R"sql(
ALTER TABLE workspaces ADD COLUMN core_quota INTEGER;
ALTER TABLE workspaces ADD COLUMN low_priority_core_quota INTEGER;
ALTER TABLE clusters ADD COLUMN deleted_us INTEGER;
ALTER TABLE attempts ADD COLUMN planned_boot TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN planned_boot_us INTEGER NOT NULL DEFAULT 0;
)sql";

/// Jobs come with code: the SHA-256 of an archive, which the service keeps beside the catalog.
constexpr const char* kThirdVersion = R"sql(
ALTER TABLE jobs ADD COLUMN code TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_by_code ON jobs (code) WHERE code <> '';
)sql";

/// Users are accounts of the machine, or trusted; a job runs as its submitter's account.
constexpr const char* kFourthVersion = R"sql(
ALTER TABLE users ADD COLUMN account TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN is_trusted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN submitter TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN account TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_queued_by_submitter ON jobs (submitter) WHERE execution_state = 'queued';
)sql";

/// Jobs that have failed can be queued again by hand, and have the retries of a new one then. Ended jobs go after a
/// time.
constexpr const char* kFifthVersion = R"sql(
ALTER TABLE jobs ADD COLUMN attempts_before INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_end ON jobs (end_us) WHERE end_us IS NOT NULL;
)sql";

/// Attempts that ended through no fault of their job are counted, and the next one waits. A copy that a backup has made
/// knows when and on which machine, and has the code of jobs that have not ended.
constexpr const char* kSixthVersion = R"sql(
ALTER TABLE jobs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN retry_us INTEGER;
CREATE TABLE service (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  lease_ms INTEGER NOT NULL,
  backup_us INTEGER,
  backup_view TEXT NOT NULL
) STRICT;
INSERT INTO service (id, lease_ms, backup_view) VALUES (1, 0, '');
CREATE TABLE backup_code (
  id INTEGER PRIMARY KEY,
  workspace_id INTEGER NOT NULL,
  code TEXT NOT NULL,
  archive BLOB NOT NULL
) STRICT;
)sql";

std::int64_t pragma(Database& database, const char* sql) {
  Query query(database, sql);
  return query.next() ? query.integer(0) : 0;
}

bool is_empty(Database& database) {
  Query query(database, "SELECT 1 FROM sqlite_schema LIMIT 1");
  return !query.next();
}

}  // namespace

std::span<const std::string> schema_steps() {
  static const std::vector<std::string> kSteps = {kFirstVersion,  kSecondVersion, kThirdVersion,
                                                  kFourthVersion, kFifthVersion,  kSixthVersion};
  return kSteps;
}

void migrate(Database& database, std::span<const std::string> steps) {
  const auto newest = static_cast<std::int64_t>(steps.size());
  const std::int64_t application = pragma(database, "PRAGMA application_id");
  const std::int64_t version = pragma(database, "PRAGMA user_version");
  if (application != kApplicationId && !(application == 0 && is_empty(database))) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{} is a SQLite file of another program, not a catalog; it was not changed. Name another file",
                    database.path().string()));
  }
  if (version > newest) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("catalog {} has schema version {}, and this Gyre knows versions up to {}; it was not changed. Use "
                    "the newer Gyre that wrote it, or start with another catalog",
                    database.path().string(), version, newest));
  }
  database.use_write_ahead_log();
  if (version == newest) return;
  Transaction transaction(database);
  for (auto step = static_cast<std::size_t>(version); step < steps.size(); ++step) database.execute(steps[step]);
  database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, newest));
  transaction.commit();
}

}  // namespace gyre::jobs::catalog
