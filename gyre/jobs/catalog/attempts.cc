#include "gyre/jobs/catalog/attempts.h"

#include "gyre/base/boot.h"
#include "gyre/base/check.h"
#include "gyre/jobs/catalog/internal/changes.h"
#include "gyre/jobs/catalog/internal/job_rows.h"
#include "gyre/jobs/catalog/internal/secrets.h"
#include "gyre/jobs/catalog/internal/store.h"
#include "gyre/jobs/catalog/jobs.h"
#include "gyre/jobs/catalog/nodes.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::string_view kSelect =
    "SELECT id, job_id, number, state, end_intent, planned_us, started_us, ended_us, exit_code, "
    "planned_boot, planned_boot_us FROM attempts WHERE ";

std::vector<AttemptNode> nodes_of(Store& store, std::string_view attempt) {
  Query query(store.database, "SELECT node_id, node_name FROM attempt_nodes WHERE attempt_id = ?1 ORDER BY position",
              attempt);
  std::vector<AttemptNode> nodes;
  while (query.next()) nodes.push_back({query.integer(0), query.text(1)});
  return nodes;
}

Attempt read_attempt(Store& store, const Query& row) {
  Attempt attempt{.id = row.text(0),
                  .job = row.integer(1),
                  .number = static_cast<int>(row.integer(2)),
                  .state = resources::state_named<AttemptState>(row.text(3)),
                  .end_intent = resources::state_named<EndIntent>(row.text(4)),
                  .planned = row.integer(5),
                  .planned_boot = {row.text(9), row.integer(10)},
                  .started = row.maybe_integer(6),
                  .ended = row.maybe_integer(7)};
  if (!row.is_null(8)) attempt.exit_code = static_cast<int>(row.integer(8));
  attempt.nodes = nodes_of(store, attempt.id);
  return attempt;
}

std::vector<Attempt> read_attempts(Store& store, Query& query) {
  std::vector<Attempt> found;
  while (query.next()) found.push_back(read_attempt(store, query));
  return found;
}

/// Of a new attempt the state before is empty.
void record_attempt(Store& store, const Job& job, const Attempt& attempt, std::string from, AttemptState to,
                    const Cause& cause) {
  Event event = job_event(job, "attempt", cause);
  event.attempt = attempt.number;
  event.from = std::move(from);
  event.to = name(to);
  record(store, event);
}

void change_attempt(Store& store, const Job& job, const Attempt& attempt, AttemptState to, const Cause& cause) {
  if (!may_change(attempt.state, to)) throw illegal_change("attempt", attempt.id, name(attempt.state), name(to));
  store.database.run("UPDATE attempts SET state = ?2 WHERE id = ?1", attempt.id, name(to));
  record_attempt(store, job, attempt, std::string(name(attempt.state)), to, cause);
}

/// The attempt's nodes are its own from now on.
void give_nodes(Store& store, const Job& job, const Attempt& attempt, const std::vector<Id>& nodes,
                const Cause& cause) {
  if (nodes.empty()) throw Error(ErrorCode::kInvalidArgument, fmt::format("attempt {} has no nodes", attempt.id));
  int position = 0;
  for (const Id id : nodes) {
    const Node node = Nodes(store).get(id);
    if (node.cluster != job.cluster) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("node '{}' is not of the cluster of job '{}'", node.name, job.name));
    }
    change_node(store, node, NodeState::kRunning, attempt.id, cause);
    store.database.run("INSERT INTO attempt_nodes (attempt_id, position, node_id, node_name) VALUES (?1, ?2, ?3, ?4)",
                       attempt.id, position++, node.id, node.name);
  }
}

void take_nodes_back(Store& store, const Attempt& attempt) {
  std::vector<Id> nodes;
  Query query(store.database, "SELECT id FROM nodes WHERE attempt_id = ?1 ORDER BY id", attempt.id);
  while (query.next()) nodes.push_back(query.integer(0));
  for (const Id id : nodes) {
    const Node node = Nodes(store).get(id);
    if (node.state == NodeState::kRunning) {
      change_node(store, node, NodeState::kPreparing, std::nullopt,
                  {"cleaning", "cleaning after attempt " + attempt.id});
    } else {
      store.database.run("UPDATE nodes SET attempt_id = NULL WHERE id = ?1", id);
    }
  }
}

/// What the next attempt of a job is to know of this one.
void count_end(Store& store, const Job& job, const AttemptEnd& end) {
  if (end.outcome != AttemptEnd::Outcome::kRequeued) return;
  store.database.run("UPDATE jobs SET losses = losses + ?2, retries = retries + ?3, retry_us = ?4 WHERE id = ?1",
                     job.id, end.counts == AttemptEnd::Counts::kLoss ? 1 : 0,
                     end.counts == AttemptEnd::Counts::kRetry ? 1 : 0, end.retry);
}

/// Of a job whose attempt has ended.
void follow_end(Store& store, const Job& job, const Attempt& attempt, const AttemptEnd& end) {
  JobChange change{.exit_code = end.exit_code, .error = end.error, .attempt = attempt.number, .cause = end.cause};
  switch (end.outcome) {
    case AttemptEnd::Outcome::kSucceeded: change.to = ExecutionState::kSucceeded; break;
    case AttemptEnd::Outcome::kFailed: change.to = ExecutionState::kFailed; break;
    case AttemptEnd::Outcome::kRequeued:
      change.to = ExecutionState::kQueued;
      // An attempt that never started leaves its job where it was.
      if (job.execution_state == ExecutionState::kQueued) return;
      break;
  }
  // It ended before the news of its start came.
  if (job.execution_state == ExecutionState::kQueued && change.to == ExecutionState::kSucceeded) {
    change_job(store, job, {.to = ExecutionState::kRunning, .attempt = attempt.number, .cause = end.cause});
    change_job(store, get_job(store, job.id), change);
    return;
  }
  change_job(store, job, change);
}

std::string attempt_id(const Job& job, int number) { return fmt::format("{}-{}", job.uuid, number); }

std::optional<Attempt> find_attempt(Store& store, std::string_view id) {
  Query query(store.database, std::string(kSelect) + "id = ?1", id);
  return query.next() ? std::optional(read_attempt(store, query)) : std::nullopt;
}

/// Whether a job can have had this attempt since the backup was made.
bool may_have(Store& store, const Job& job, int number) {
  const bool over = job.execution_state == ExecutionState::kSucceeded ||
                    job.execution_state == ExecutionState::kTerminating ||
                    job.provisioning_state == ProvisioningState::kDeleting;
  return !over && number > job.attempts && !find_attempt(store, attempt_id(job, number));
}

/// Nobody is going to say that they are clean: whoever knows of the attempt's end has said so.
void clean(Store& store, const Attempt& ended, const Cause& cause) {
  for (const AttemptNode& each : ended.nodes) {
    const auto node = Nodes(store).find(each.name);
    if (node && node->state == NodeState::kPreparing) Nodes(store).change(node->id, NodeState::kIdle, cause);
  }
}

/// The job is queued, for an attempt of which is known that it has begun.
void make_ready(Store& store, const Job& job, int number, const Cause& cause) {
  if (const auto before = unended_attempt(store, job.id)) {
    Attempts(store).confirm_end(*before,
                                {.outcome = AttemptEnd::Outcome::kRequeued,
                                 .cause = {cause.reason, fmt::format("it had ended before attempt {} began", number)}});
    clean(store, *find_attempt(store, *before), cause);
  }
  if (get_job(store, job.id).execution_state == ExecutionState::kFailed) Jobs(store).retry(job.id, cause);
}

}  // namespace

Attempt Attempts::insert(const Job& job, int number, const Cause& cause) {
  const Attempt attempt{.id = attempt_id(job, number),
                        .job = job.id,
                        .number = number,
                        .planned = store_.now(),
                        .planned_boot = {boot_id(), boot_clock_us()}};
  store_.database.run(
      "INSERT INTO attempts (id, job_id, number, state, end_intent, planned_us, planned_boot, planned_boot_us) VALUES "
      "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      attempt.id, job.id, number, name(attempt.state), name(attempt.end_intent), attempt.planned,
      attempt.planned_boot.boot, attempt.planned_boot.time_us);
  store_.database.run("UPDATE jobs SET attempts = ?2, retry_us = NULL WHERE id = ?1", job.id, number);
  record_attempt(store_, job, attempt, "", attempt.state, cause);
  return attempt;
}

Attempt Attempts::plan(Id job_id, int number, const std::vector<Id>& nodes, const Cause& cause) {
  Transaction transaction(store_.database);
  const Job job = get_job(store_, job_id);
  if (const auto known = find_attempt(store_, attempt_id(job, number))) {
    transaction.commit();
    return *known;
  }
  if (job.execution_state != ExecutionState::kQueued || number != job.attempts + 1 || unended_attempt(store_, job_id)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("attempt {} of job '{}' cannot be planned: the job is {} after {} attempts", number,
                            job.name, name(job.execution_state), job.attempts));
  }
  const Attempt attempt = insert(job, number, cause);
  give_nodes(store_, job, attempt, nodes, cause);
  Attempt planned = get(attempt.id);
  transaction.commit();
  return planned;
}

bool Attempts::adopt(Id job_id, int number, const std::vector<AttemptNode>& nodes, const Cause& cause) {
  Transaction transaction(store_.database);
  const Job before = get_job(store_, job_id);
  if (nodes.empty() || !may_have(store_, before, number)) return false;
  make_ready(store_, before, number, cause);
  const Job job = get_job(store_, job_id);
  std::vector<Id> own;
  for (const AttemptNode& each : nodes) {
    const Node node = Nodes(store_).adopt(job.cluster, each, cause);
    if (node.cluster != job.cluster || node.state != NodeState::kIdle) return false;
    own.push_back(node.id);
  }
  const Attempt attempt = insert(job, number, cause);
  give_nodes(store_, job, attempt, own, cause);
  confirm_start(attempt.id, cause);
  transaction.commit();
  return true;
}

bool Attempts::adopt_end(Id job_id, int number, const std::vector<AttemptNode>& nodes, TimeUs started, TimeUs ended,
                         const AttemptEnd& end) {
  Transaction transaction(store_.database);
  const Job before = get_job(store_, job_id);
  const std::string id = attempt_id(before, number);
  if (const auto known = find_attempt(store_, id)) {
    if (known->state == AttemptState::kEnded) return false;
    if (known->end_intent == EndIntent::kTerminate && end.outcome == AttemptEnd::Outcome::kRequeued) return false;
  } else {
    if (!may_have(store_, before, number)) return false;
    make_ready(store_, before, number, end.cause);
    const Job job = get_job(store_, job_id);
    const Attempt attempt = insert(job, number, end.cause);
    int position = 0;
    for (const AttemptNode& node : nodes) {
      store_.database.run(
          "INSERT INTO attempt_nodes (attempt_id, position, node_id, node_name) VALUES (?1, ?2, ?3, ?4)", attempt.id,
          position++, node.id, node.name);
    }
  }
  confirm_start(id, {"restored", "it began before the catalog was restored"});
  confirm_end(id, end);
  clean(store_, get(id), end.cause);
  // When it really was.
  store_.database.run("UPDATE attempts SET started_us = ?2, ended_us = ?3 WHERE id = ?1", id, started, ended);
  store_.database.run(
      "UPDATE jobs SET start_us = ?2, end_us = CASE WHEN end_us IS NULL THEN NULL ELSE ?3 END WHERE id = ?1", job_id,
      started, ended);
  transaction.commit();
  return true;
}

void Attempts::confirm_start(std::string_view id, const Cause& cause) {
  Transaction transaction(store_.database);
  const Attempt attempt = get(id);
  if (attempt.state == AttemptState::kPlanned) {
    const Job job = get_job(store_, attempt.job);
    change_attempt(store_, job, attempt, AttemptState::kStarted, cause);
    store_.database.run("UPDATE attempts SET started_us = ?2 WHERE id = ?1", id, store_.now());
    change_job(store_, job, {.to = ExecutionState::kRunning, .attempt = attempt.number, .cause = cause});
  }
  transaction.commit();
}

void Attempts::plan_end(std::string_view id, EndIntent intent, const Cause& cause) {
  GYRE_CHECK(intent != EndIntent::kNone);
  Transaction transaction(store_.database);
  const Attempt attempt = get(id);
  const bool open = attempt.state == AttemptState::kPlanned || attempt.state == AttemptState::kStarted;
  const bool harder = attempt.state == AttemptState::kEnding && attempt.end_intent == EndIntent::kRequeue &&
                      intent == EndIntent::kTerminate;
  if (open || harder) {
    const Job job = get_job(store_, attempt.job);
    if (open) change_attempt(store_, job, attempt, AttemptState::kEnding, cause);
    store_.database.run("UPDATE attempts SET end_intent = ?2 WHERE id = ?1", id, name(intent));
    if (intent == EndIntent::kTerminate) {
      change_job(store_, job, {.to = ExecutionState::kTerminating, .attempt = attempt.number, .cause = cause});
    }
  }
  transaction.commit();
}

void Attempts::confirm_end(std::string_view id, const AttemptEnd& end) {
  Transaction transaction(store_.database);
  const Attempt attempt = get(id);
  if (attempt.state == AttemptState::kEnded) return transaction.commit();
  const Job job = get_job(store_, attempt.job);
  if (end.outcome == AttemptEnd::Outcome::kRequeued && attempt.end_intent == EndIntent::kTerminate) {
    throw illegal_change("job", job.name, name(job.execution_state), name(ExecutionState::kQueued));
  }
  if (end.outcome == AttemptEnd::Outcome::kFailed && (!end.error || end.error->code.empty())) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("attempt {} failed without an error", attempt.id));
  }
  change_attempt(store_, job, attempt, AttemptState::kEnded, end.cause);
  store_.database.run("UPDATE attempts SET ended_us = ?2, exit_code = ?3 WHERE id = ?1", id, store_.now(),
                      end.exit_code);
  take_nodes_back(store_, attempt);
  count_end(store_, job, end);
  follow_end(store_, job, attempt, end);
  transaction.commit();
}

Attempt Attempts::get(std::string_view id) {
  auto found = find_attempt(store_, id);
  if (!found) throw not_found("attempt", id);
  return *std::move(found);
}

std::vector<Attempt> Attempts::list(Id job) {
  Query query(store_.database, std::string(kSelect) + "job_id = ?1 ORDER BY number", job);
  return read_attempts(store_, query);
}

std::vector<Attempt> Attempts::unended() {
  Query query(store_.database, std::string(kSelect) + "state <> 'ended' ORDER BY job_id, number");
  return read_attempts(store_, query);
}

std::vector<Secret> Attempts::secrets(std::string_view id) {
  const Attempt attempt = get(id);
  if (attempt.state == AttemptState::kEnded) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("attempt {} has ended; its secrets are not handed out", id));
  }
  return read_secrets(store_, {.job = attempt.job});
}

}  // namespace gyre::jobs::catalog
