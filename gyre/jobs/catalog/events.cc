#include "gyre/jobs/catalog/events.h"

#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::string_view kSelect =
    "SELECT sequence, time_us, subject, name, workspace_id, cluster_id, job_id, attempt, node_id, from_state, "
    "to_state, "
    "reason, message FROM events WHERE ";

Event read_event(const Query& row) {
  Event event{.sequence = row.integer(0),
              .time = row.integer(1),
              .subject = row.text(2),
              .name = row.text(3),
              .workspace = row.maybe_integer(4),
              .cluster = row.maybe_integer(5),
              .job = row.maybe_integer(6),
              .node = row.maybe_integer(8),
              .from = row.text(9),
              .to = row.text(10),
              .reason = row.text(11),
              .message = row.text(12)};
  if (!row.is_null(7)) event.attempt = static_cast<int>(row.integer(7));
  return event;
}

}  // namespace

Page<Event> Events::list(const EventFilter& filter, const PageRequest& request) {
  if (filter.workspace.has_value() + filter.cluster.has_value() + filter.job.has_value() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "read events of a workspace, a cluster or a job, not of two of them");
  }
  std::string condition = "?3 IS NULL";
  std::optional<Id> subject;
  const auto choose = [&](const std::optional<Id>& id, std::string_view column) {
    if (!id) return;
    subject = id;
    condition = fmt::format("{} = ?3", column);
  };
  choose(filter.workspace, "workspace_id");
  choose(filter.cluster, "cluster_id");
  choose(filter.job, "job_id");
  Query query(store_.database, paged(std::string(kSelect) + condition, request, "sequence"), page_start(request),
              page_rows(request), subject);
  return read_page<Event>(query, request, read_event, [](const Event& one) { return one.sequence; });
}

int Events::forget_before(TimeUs time) {
  // A part of them at a time: whoever writes meanwhile waits.
  return store_.database.run(
      "DELETE FROM events WHERE sequence IN (SELECT sequence FROM (SELECT sequence, time_us, job_id FROM events ORDER "
      "BY "
      "sequence LIMIT 5000) WHERE time_us < ?1 AND sequence < (SELECT max(sequence) FROM events) AND (job_id IS NULL "
      "OR "
      "job_id NOT IN (SELECT id FROM jobs WHERE execution_state IN ('queued', 'running', 'terminating'))))",
      time);
}

Id Events::latest() {
  Query query(store_.database, "SELECT coalesce(max(sequence), 0) FROM events");
  return query.next() ? query.integer(0) : 0;
}

std::set<Id> Events::jobs_changed_after(Id sequence) {
  // By their numbers, not by an index of all jobs' events.
  Query query(store_.database, "SELECT job_id FROM events NOT INDEXED WHERE sequence > ?1", sequence);
  std::set<Id> jobs;
  while (query.next()) {
    if (const auto job = query.maybe_integer(0)) jobs.insert(*job);
  }
  return jobs;
}

}  // namespace gyre::jobs::catalog
