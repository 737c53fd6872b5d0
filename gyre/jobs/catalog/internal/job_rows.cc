#include "gyre/jobs/catalog/internal/job_rows.h"

#include "gyre/jobs/resources/json.h"

namespace gyre::jobs::catalog {

std::string select_jobs() {
  return "SELECT id, uuid, workspace_id, experiment_id, cluster_id, name, spec, created_us, provisioning_state, "
         "provisioning_us, execution_state, execution_us, attempts, start_us, end_us, exit_code, error_code, "
         "error_message, error_details, code, submitter, account, attempts_before, losses, retries, retry_us FROM jobs "
         "WHERE ";
}

Job read_job(const Query& row) {
  Job job{.id = row.integer(0),
          .uuid = row.text(1),
          .workspace = row.integer(2),
          .experiment = row.integer(3),
          .cluster = row.integer(4),
          .name = row.text(5),
          .spec = row.text(6),
          .created = row.integer(7),
          .provisioning_state = resources::state_named<ProvisioningState>(row.text(8)),
          .provisioning_changed = row.integer(9),
          .execution_state = resources::state_named<ExecutionState>(row.text(10)),
          .execution_changed = row.integer(11),
          .attempts = static_cast<int>(row.integer(12)),
          .start = row.maybe_integer(13),
          .end = row.maybe_integer(14)};
  if (!row.is_null(15)) job.exit_code = static_cast<int>(row.integer(15));
  if (!row.is_null(16))
    job.error = ResourceError{row.text(16), row.text(17), resources::details_from_text(row.text(18))};
  job.code = row.text(19);
  job.submitter = row.text(20);
  job.account = row.text(21);
  job.attempts_before = static_cast<int>(row.integer(22));
  job.losses = static_cast<int>(row.integer(23));
  job.retries = static_cast<int>(row.integer(24));
  job.retry = row.maybe_integer(25);
  return job;
}

Job get_job(Store& store, Id id) {
  Query query(store.database, select_jobs() + "id = ?1", id);
  if (!query.next()) throw not_found("job", id);
  return read_job(query);
}

std::string list_jobs_statement(const JobFilter& filter, const PageRequest& request) {
  if (filter.workspace.has_value() + filter.experiment.has_value() + filter.cluster.has_value() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "list jobs of a workspace, an experiment or a cluster, not of two of them");
  }
  std::string condition = "TRUE";
  if (filter.workspace) condition = "workspace_id = ?3";
  if (filter.experiment) condition = "experiment_id = ?3";
  if (filter.cluster) condition = "cluster_id = ?3";
  if (filter.state) condition += " AND execution_state = ?4";
  return paged(select_jobs() + condition, request);
}

}  // namespace gyre::jobs::catalog
