#include "gyre/jobs/catalog/internal/changes.h"

#include "gyre/jobs/resources/json.h"

namespace gyre::jobs::catalog {

void change_node(Store& store, const Node& node, NodeState to, const std::optional<std::string>& attempt,
                 const Cause& cause) {
  if (!may_change(node.state, to)) throw illegal_change("node", node.name, name(node.state), name(to));
  const bool has_problem = to == NodeState::kUnusable || to == NodeState::kLost;
  store.database.run("UPDATE nodes SET state = ?2, state_us = ?3, attempt_id = ?4, problem = ?5 WHERE id = ?1", node.id,
                     name(to), store.now(), attempt, has_problem ? cause.message : std::string());
  record(store, {.subject = "node",
                 .name = node.name,
                 .cluster = node.cluster,
                 .node = node.id,
                 .from = std::string(name(node.state)),
                 .to = std::string(name(to)),
                 .reason = cause.reason,
                 .message = cause.message});
}

Event job_event(const Job& job, std::string subject, const Cause& cause) {
  return {.subject = std::move(subject),
          .name = job.name,
          .workspace = job.workspace,
          .cluster = job.cluster,
          .job = job.id,
          .reason = cause.reason,
          .message = cause.message};
}

void change_job(Store& store, const Job& job, const JobChange& change) {
  const ExecutionState from = job.execution_state;
  if (!may_change(from, change.to)) throw illegal_change("job", job.name, name(from), name(change.to));
  const TimeUs now = store.now();
  store.database.run("UPDATE jobs SET execution_state = ?2, execution_us = ?3 WHERE id = ?1", job.id, name(change.to),
                     now);
  if (change.to == ExecutionState::kRunning) {
    store.database.run("UPDATE jobs SET start_us = ?2 WHERE id = ?1", job.id, now);
  } else if (is_finished(change.to)) {
    // No clock that was set back makes a job end before it began.
    const ResourceError error = change.error.value_or(ResourceError{});
    const bool failed = change.to == ExecutionState::kFailed;
    store.database.run(
        "UPDATE jobs SET end_us = max(?2, coalesce(start_us, ?2)), exit_code = ?3, error_code = ?4, error_message = "
        "?5, error_details = ?6 WHERE id "
        "= ?1",
        job.id, now, change.exit_code, failed ? std::optional(error.code) : std::nullopt,
        failed ? std::optional(error.message) : std::nullopt,
        failed ? std::optional(resources::details_text(error)) : std::nullopt);
    // Nobody needs them any more.
    store.database.run("DELETE FROM secrets WHERE job_id = ?1", job.id);
  }
  Event event = job_event(job, "job", change.cause);
  event.attempt = change.attempt;
  event.from = name(from);
  event.to = name(change.to);
  record(store, event);
}

std::optional<std::string> unended_attempt(Store& store, Id job) {
  Query query(store.database, "SELECT id FROM attempts WHERE job_id = ?1 AND state <> 'ended'", job);
  return query.next() ? std::optional(query.text(0)) : std::nullopt;
}

}  // namespace gyre::jobs::catalog
