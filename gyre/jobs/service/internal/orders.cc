#include "gyre/jobs/service/internal/orders.h"

#include "gyre/jobs/service/internal/names.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

orders::WorkOrder order_of(Ledger& ledger, const ServiceOptions& options, const drivers::Driver& driver,
                           const catalog::Attempt& attempt, bool with_secrets) {
  const catalog::Job job = ledger.catalog.jobs().get(attempt.job);
  const catalog::Cluster cluster = ledger.catalog.clusters().get(job.cluster);
  orders::WorkOrder order;
  order.attempt = attempt.id;
  order.attempt_number = attempt.number;
  order.job_name = job.name;
  order.account = job.account;
  order.cluster_name = cluster.name;
  const resources::JobName name{ledger.workspace_name(job.workspace), ledger.experiment_name(job.experiment), job.name};
  order.path_segment = path_segment(options, name, job.uuid);
  order.setup_path_suffix =
      path_suffix(options, {ledger.workspace_name(cluster.workspace), cluster.name}, cluster.uuid);
  order.job = with_secrets ? job_spec(job.spec, ledger.catalog.attempts().secrets(attempt.id)) : job_spec(job.spec);
  order.cluster = with_secrets
                      ? cluster_spec(cluster.spec, cluster.scale, ledger.catalog.clusters().secrets(cluster.id))
                      : cluster_spec(cluster.spec, cluster.scale);
  if (!job.code.empty()) {
    order.code_archive = ledger.code.path(job.workspace, job.code).string();
    order.code_sha256 = job.code;
  }
  if (options.submitters != Submitters::kEverybody) order.log_bytes = options.log_bytes_per_job;
  for (const catalog::AttemptNode& node : attempt.nodes) order.nodes.push_back(driver.place(node.name, node.id));
  return order;
}

}  // namespace gyre::jobs::service
