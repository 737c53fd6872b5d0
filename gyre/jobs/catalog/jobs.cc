#include "gyre/jobs/catalog/jobs.h"

#include "gyre/jobs/catalog/attempts.h"
#include "gyre/jobs/catalog/internal/changes.h"
#include "gyre/jobs/catalog/internal/job_rows.h"
#include "gyre/jobs/catalog/internal/secrets.h"
#include "gyre/jobs/catalog/internal/store.h"
#include "gyre/jobs/catalog/names.h"

namespace gyre::jobs::catalog {
namespace {

std::vector<Job> read_jobs(Query& query) {
  std::vector<Job> found;
  while (query.next()) found.push_back(read_job(query));
  return found;
}

std::optional<Id> subject_of(const JobFilter& filter) {
  if (filter.workspace) return filter.workspace;
  return filter.experiment ? filter.experiment : filter.cluster;
}

}  // namespace

Job Jobs::create(const NewJob& job) {
  check_name(job.name, "job name");
  Transaction transaction(store_.database);
  Query experiment(store_.database, "SELECT workspace_id FROM experiments WHERE id = ?1", job.experiment);
  if (!experiment.next()) throw not_found("experiment", job.experiment);
  Query cluster(store_.database, "SELECT provisioning_state, name FROM clusters WHERE id = ?1", job.cluster);
  if (!cluster.next()) throw not_found("cluster", job.cluster);
  if (cluster.text(0) == name(ProvisioningState::kDeleting)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("cluster '{}' is being deleted", cluster.text(1)));
  }
  if (find(job.experiment, job.name)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is a job '{}' already", job.name));
  }
  store_.database.run(
      "INSERT INTO jobs (uuid, workspace_id, experiment_id, cluster_id, name, spec, created_us, provisioning_state, "
      "provisioning_us, execution_state, execution_us, attempts, code, submitter, account) VALUES (?1, ?2, ?3, ?4, ?5, "
      "?6, ?7, ?8, ?7, ?9, ?7, 0, ?10, ?11, ?12)",
      new_uuid(), experiment.integer(0), job.experiment, job.cluster, job.name, job.spec, store_.now(),
      name(ProvisioningState::kSucceeded), name(ExecutionState::kQueued), job.code, job.submitter, job.account);
  const Id id = store_.database.last_insert_id();
  keep_secrets(store_, {.job = id}, job.secrets);
  const Job made = get(id);
  Event event = job_event(made, "job", {});
  event.to = name(made.execution_state);
  record(store_, event);
  transaction.commit();
  return made;
}

std::optional<Job> Jobs::find(Id experiment, std::string_view name) {
  Query query(store_.database, select_jobs() + "experiment_id = ?1 AND name = ?2", experiment, name);
  return query.next() ? std::optional(read_job(query)) : std::nullopt;
}

Job Jobs::get(Id id) { return get_job(store_, id); }

Page<Job> Jobs::list(const JobFilter& filter, const PageRequest& request) {
  const auto state = filter.state ? std::optional(name(*filter.state)) : std::nullopt;
  Query query(store_.database, list_jobs_statement(filter, request), page_start(request), page_rows(request),
              subject_of(filter), state);
  return read_page<Job>(query, request, read_job, [](const Job& one) { return one.id; });
}

std::optional<Job> Jobs::find(Id id) {
  Query query(store_.database, select_jobs() + "id = ?1", id);
  return query.next() ? std::optional(read_job(query)) : std::nullopt;
}

std::vector<Job> Jobs::unfinished() {
  std::vector<Job> found;
  for_each_unfinished([&](const Job& job) { found.push_back(job); });
  return found;
}

void Jobs::for_each_unfinished(const std::function<void(const Job&)>& visit) {
  Query query(store_.database, select_jobs() + "execution_state IN ('queued', 'running', 'terminating') ORDER BY id");
  while (query.next()) visit(read_job(query));
}

std::vector<Job> Jobs::deleting() {
  Query query(store_.database, select_jobs() + "provisioning_state = 'deleting' ORDER BY id");
  return read_jobs(query);
}

std::map<ExecutionState, std::int64_t> Jobs::count(const JobFilter& filter) {
  std::string condition = "?1 IS NULL";
  if (filter.workspace) condition = "workspace_id = ?1";
  if (filter.experiment) condition = "experiment_id = ?1";
  if (filter.cluster) condition = "cluster_id = ?1";
  Query query(store_.database,
              fmt::format("SELECT execution_state, count(*) FROM jobs WHERE {} GROUP BY execution_state", condition),
              subject_of(filter));
  std::map<ExecutionState, std::int64_t> counts;
  while (query.next()) counts[resources::state_named<ExecutionState>(query.text(0))] = query.integer(1);
  return counts;
}

bool Jobs::terminate(Id id, const Cause& cause) {
  Transaction transaction(store_.database);
  const Job job = get(id);
  const bool going_on =
      job.execution_state == ExecutionState::kQueued || job.execution_state == ExecutionState::kRunning;
  if (going_on) {
    if (const auto attempt = unended_attempt(store_, id)) {
      Attempts(store_).plan_end(*attempt, EndIntent::kTerminate, cause);
    } else {
      change_job(store_, job,
                 {.to = ExecutionState::kFailed,
                  .error = ResourceError{"JobFailed", cause.message, {{"reason", "request"}}},
                  .cause = cause});
    }
  }
  transaction.commit();
  return going_on;
}

void Jobs::retry(Id id, const Cause& cause) {
  Transaction transaction(store_.database);
  const Job job = get(id);
  if (job.execution_state != ExecutionState::kFailed || job.provisioning_state == ProvisioningState::kDeleting) {
    throw illegal_change("job", job.name, name(job.execution_state), name(ExecutionState::kQueued));
  }
  change_job(store_, job, {.to = ExecutionState::kQueued, .cause = cause});
  store_.database.run(
      "UPDATE jobs SET attempts_before = attempts, losses = 0, retries = 0, retry_us = NULL, start_us = NULL, end_us = "
      "NULL, exit_code = NULL, error_code = "
      "NULL, "
      "error_message = NULL, error_details = NULL WHERE id = ?1",
      id);
  transaction.commit();
}

void Jobs::start_deletion(Id id, const Cause& cause) {
  Transaction transaction(store_.database);
  const Job job = get(id);
  if (job.provisioning_state != ProvisioningState::kDeleting) {
    store_.database.run("UPDATE jobs SET provisioning_state = ?2, provisioning_us = ?3 WHERE id = ?1", id,
                        name(ProvisioningState::kDeleting), store_.now());
    Event event = job_event(job, "jobProvisioning", cause);
    event.from = name(job.provisioning_state);
    event.to = name(ProvisioningState::kDeleting);
    record(store_, event);
    terminate(id, cause);
  }
  transaction.commit();
}

void Jobs::remove(Id id) {
  Transaction transaction(store_.database);
  const Job job = get(id);
  if (job.provisioning_state != ProvisioningState::kDeleting || !is_finished(job.execution_state)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("job '{}' cannot be removed: it is {} and {}", job.name,
                                                         name(job.provisioning_state), name(job.execution_state)));
  }
  store_.database.run("DELETE FROM jobs WHERE id = ?1", id);
  // It was kept for its jobs alone, and this may have been the last one.
  store_.database.run(
      "DELETE FROM clusters WHERE id = ?1 AND deleted_us IS NOT NULL AND NOT EXISTS (SELECT 1 FROM jobs WHERE "
      "cluster_id = ?1)",
      job.cluster);
  Event event = job_event(job, "jobProvisioning", {});
  event.from = name(ProvisioningState::kDeleting);
  record(store_, event);
  transaction.commit();
}

std::int64_t Jobs::queued_of(std::string_view submitter, std::int64_t most) {
  Query query(store_.database,
              "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE submitter = ?1 AND execution_state = 'queued' LIMIT ?2)",
              submitter, most);
  return query.next() ? query.integer(0) : 0;
}

bool Jobs::uses_code(Id workspace, std::string_view code) {
  Query query(store_.database, "SELECT 1 FROM jobs WHERE code = ?1 AND code <> '' AND workspace_id = ?2 LIMIT 1", code,
              workspace);
  return query.next();
}

std::vector<CodeKey> Jobs::code_of_unfinished() {
  Query query(store_.database,
              "SELECT DISTINCT workspace_id, code FROM jobs WHERE code <> '' AND execution_state IN ('queued', "
              "'running', 'terminating') ORDER BY workspace_id, code");
  std::vector<CodeKey> found;
  while (query.next()) found.push_back({query.integer(0), query.text(1)});
  return found;
}

std::vector<std::string> Jobs::unfinished_with_code(const CodeKey& code) {
  Query query(store_.database,
              "SELECT name FROM jobs WHERE workspace_id = ?1 AND code = ?2 AND execution_state IN ('queued', "
              "'running', 'terminating') ORDER BY id",
              code.workspace, code.sha256);
  std::vector<std::string> names;
  while (query.next()) names.push_back(query.text(0));
  return names;
}

std::optional<Job> Jobs::find_by_uuid(std::string_view uuid) {
  Query query(store_.database, select_jobs() + "uuid = ?1", uuid);
  return query.next() ? std::optional(read_job(query)) : std::nullopt;
}

std::set<std::string> Jobs::uuids_of_unsuccessful(Id cluster) {
  Query query(store_.database, "SELECT uuid FROM jobs WHERE cluster_id = ?1 AND execution_state <> 'succeeded'",
              cluster);
  std::set<std::string> found;
  while (query.next()) found.insert(query.text(0));
  return found;
}

void Jobs::fail(Id id, const ResourceError& error) {
  Transaction transaction(store_.database);
  change_job(store_, get(id), {.to = ExecutionState::kFailed, .error = error, .cause = {error.code, error.message}});
  transaction.commit();
}

bool Jobs::needs_code(Id workspace, std::string_view code, TimeUs since) {
  Query query(
      store_.database,
      "SELECT 1 FROM jobs WHERE code = ?1 AND code <> '' AND workspace_id = ?2 AND (execution_state IN ('queued', "
      "'running', 'terminating') OR end_us >= ?3) LIMIT 1",
      code, workspace, since);
  return query.next();
}

std::vector<Job> Jobs::ended_before(TimeUs time, int most) {
  Query query(store_.database,
              select_jobs() +
                  "end_us IS NOT NULL AND end_us < ?1 AND execution_state IN ('succeeded', 'failed') AND "
                  "provisioning_state <> 'deleting' ORDER BY end_us LIMIT ?2",
              time, most);
  return read_jobs(query);
}

void Jobs::remark(Id id, const Cause& cause) { record(store_, job_event(get(id), "job", cause)); }

bool Jobs::has_event(Id id, std::string_view reason, TimeUs since) {
  Query query(store_.database, "SELECT 1 FROM events WHERE job_id = ?1 AND reason = ?2 AND time_us >= ?3 LIMIT 1", id,
              reason, since);
  return query.next();
}

}  // namespace gyre::jobs::catalog
