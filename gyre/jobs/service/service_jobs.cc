#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "gyre/jobs/node/code.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/internal/accounts.h"
#include "gyre/jobs/service/internal/disk_reserve.h"
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/internal/start_news.h"
#include "gyre/jobs/service/internal/work.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

using resources::ServiceError;

namespace {

/// What a cluster can never have must not wait for ever. A manual scale can be changed; the job waits for that.
void check_node_count(const spec::JobSpec& job, const spec::ClusterSpec& cluster, const std::string& name) {
  const auto* automatic = std::get_if<spec::AutoScale>(&cluster.scale_settings);
  if (!automatic || job.node_count <= automatic->maximum_node_count) return;
  throw ServiceError(ServiceError::Kind::kInvalid, "NodeCountTooLarge",
                     fmt::format("nodeCount is {}, and cluster '{}' grows to at most {} nodes", job.node_count, name,
                                 automatic->maximum_node_count));
}

/// A container that the cluster cannot start would be found by the first attempt.
void check_container(const spec::JobSpec& job, const spec::ClusterSpec& cluster, const std::string& name) {
  const auto why = node::why_no_container(job, cluster);
  if (!why) return;
  throw ServiceError(ServiceError::Kind::kInvalid, "ContainersNotSupported",
                     fmt::format("the job cannot run on cluster '{}': {}", name, *why));
}

void check_code_is_there(const spec::JobSpec& job, const std::string& code) {
  const std::vector<std::string> files = spec::files_of_code(job);
  if (files.empty() || !code.empty()) return;
  throw ServiceError(ServiceError::Kind::kInvalid, "CodeNotFound",
                     fmt::format("the job names {}, a file of its code, and comes without code", files.front()));
}

/// New jobs need little. What they leave is for the jobs that the service has.
constexpr std::uint64_t kReservesPerJobReserve = 10;

std::string state_sentence(resources::ExecutionState state, int attempts) {
  const std::string times = attempts == 1 ? "in its first attempt" : fmt::format("in attempt {}", attempts);
  switch (state) {
    case resources::ExecutionState::kQueued: return "the job waits";
    case resources::ExecutionState::kRunning: return "the job runs, " + times;
    case resources::ExecutionState::kTerminating: return "the job is being ended";
    case resources::ExecutionState::kSucceeded: return "the job has succeeded, " + times;
    case resources::ExecutionState::kFailed: return "the job has failed";
  }
  return "the job is in no known state";
}

/// Its end is written down, and nobody has been asked whether it ends.
void leave_running(Ledger& ledger, const catalog::Attempt& attempt, const std::string& cluster,
                   const std::string& problem) GYRE_REQUIRES(ledger.mutex) {
  std::vector<std::string> names;
  for (const catalog::AttemptNode& node : attempt.nodes) {
    names.push_back(node.name);
    const auto known = ledger.catalog.nodes().find(node.name);
    if (known && known->state == resources::NodeState::kRunning) {
      ledger.catalog.nodes().change(known->id, resources::NodeState::kLost,
                                    {"request", "its job was ended without it"});
    }
  }
  const std::string message = fmt::format(
      "the job was ended with --force, without its nodes, because cluster '{}' cannot be used ({}); processes of "
      "attempt "
      "{} may still run on {}, and write to its outputs, until their lease is over or the cluster can be used again",
      cluster, problem, attempt.id, fmt::join(names, ", "));
  ledger.catalog.attempts().confirm_end(attempt.id, {.outcome = catalog::AttemptEnd::Outcome::kFailed,
                                                     .exit_code = resources::kNotTheJobsExitCode,
                                                     .error = resources::ResourceError{kLeftRunning, message},
                                                     .cause = {kLeftRunning, message}});
  ledger.live.erase(attempt.id);
}

/// What a job that is queued again would fail for at once, or could run beside.
void check_retry(Ledger& ledger, const catalog::Job& job) GYRE_REQUIRES(ledger.mutex) {
  const auto refuse = [&](ServiceError::Kind kind, const std::string& code, const std::string& why) {
    throw ServiceError(kind, code, fmt::format("job '{}' cannot be retried: {}", job.name, why));
  };
  using Kind = ServiceError::Kind;
  if (job.provisioning_state == resources::ProvisioningState::kDeleting) {
    refuse(Kind::kConflict, "JobDeleting", "it is being deleted");
  }
  if (job.execution_state != resources::ExecutionState::kFailed) {
    refuse(Kind::kConflict, "JobNotFailed", fmt::format("it is {}, and has not failed", name(job.execution_state)));
  }
  if (job.error && job.error->code == kLeftRunning) {
    refuse(Kind::kConflict, kLeftRunning,
           "it was ended with --force, and may still run; submit it under another name once you know that it does not");
  }
  const auto stored = stored_spec(job);
  if (!stored.spec) refuse(Kind::kConflict, kUnreadableJob, stored.problem);
  if (has_secrets(*stored.spec)) {
    refuse(Kind::kConflict, "SecretsDeleted", "its secrets were deleted when it ended; submit it again with them");
  }
  const catalog::Cluster cluster = ledger.catalog.clusters().get(job.cluster);
  const auto present = ledger.catalog.clusters().find(cluster.workspace, cluster.name);
  if (!present || present->id != cluster.id) {
    refuse(Kind::kNotFound, "ClusterNotFound", fmt::format("its cluster '{}' was deleted", cluster.name));
  }
  if (cluster.provisioning_state == resources::ProvisioningState::kDeleting) {
    refuse(Kind::kConflict, "ClusterDeleting", fmt::format("its cluster '{}' is being deleted", cluster.name));
  }
  if (!job.code.empty() && !ledger.code.has(job.workspace, job.code)) {
    refuse(Kind::kNotFound, kCodeNotFound, kNoCode);
  }
}

/// A mount that the cluster lacks would be found by the first attempt; it is better told to the one who submits.
void check_places(const spec::JobSpec& job, const spec::ClusterSpec& cluster, const std::string& name) {
  try {
    node::check_mounts(job, cluster);
  } catch (const Error& error) {
    throw ServiceError(ServiceError::Kind::kInvalid, "UnusablePath",
                       fmt::format("the job cannot run on cluster '{}': {}", name, error.what()));
  }
}

/// What the cluster can never give it must not wait for ever.
void check_resources(Dispatcher& dispatcher, const spec::JobSpec& job, const spec::ClusterSpec& cluster,
                     const std::string& name) {
  try {
    dispatcher.check_job(job, cluster);
  } catch (const Error& error) {
    const bool of_machine = error.code() == ErrorCode::kResourceExhausted;
    throw ServiceError(ServiceError::Kind::kInvalid, of_machine ? "NotEnoughResources" : "NotEnoughGpus",
                       fmt::format("the job cannot run on cluster '{}': {}", name, error.what()));
  }
}

/// As it was submitted: the digest of the image is the service's own addition.
spec::JobSpec without_digest(spec::JobSpec job) {
  if (job.container_settings) job.container_settings->digest.clear();
  return job;
}

bool is_same(const catalog::Job& found, const spec::JobSpec& submitted) {
  if (!submitted.container_settings) return found.spec == kept(submitted).text;
  const auto stored = stored_spec(found);
  return stored.spec && kept(without_digest(*stored.spec)).text == kept(submitted).text;
}

/// An image that is not there, or that nobody gives it, would be found by the first attempt. A registry that does not
/// answer now is asked by the nodes.
spec::JobSpec with_digest(Dispatcher& dispatcher, spec::JobSpec job, const spec::ClusterSpec& cluster,
                          const std::string& name) {
  try {
    job.container_settings->digest = dispatcher.image_digest(job, cluster).value_or("");
  } catch (const Error& error) {
    const bool final = error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kAuthentication ||
                       error.code() == ErrorCode::kUnsupported;
    if (final) {
      throw ServiceError(ServiceError::Kind::kInvalid, resources::error_code::kContainer,
                         fmt::format("the job cannot run on cluster '{}': {}", name, error.what()));
    }
  }
  return job;
}

/// What a node could not unpack would be found by the first attempt.
void check_code(const UniqueFd& archive) {
  try {
    node::check_code(archive.get());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    throw ServiceError(ServiceError::Kind::kInvalid, "UnusableCode", error.what());
  }
}

}  // namespace

resources::Page<resources::Job> Service::jobs(const std::string& workspace, const resources::JobFilter& filter,
                                              const resources::PageRequest& page) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  catalog::JobFilter wanted;
  if (filter.experiment) {
    wanted.experiment = ledger.experiment({workspace, *filter.experiment}).id;
  } else if (filter.cluster) {
    wanted.cluster = ledger.cluster({workspace, *filter.cluster}).id;
  } else {
    wanted.workspace = ledger.workspace(workspace).id;
  }
  if (filter.state) wanted.state = filter.state;
  std::map<catalog::Id, std::string> experiments;
  const auto list = ledger.catalog.jobs().list(wanted, kept(page));
  resources::Page<resources::Job> result;
  for (const catalog::Job& job : list.items) {
    std::string& experiment = experiments[job.experiment];
    if (experiment.empty()) experiment = ledger.experiment_name(job.experiment);
    result.items.push_back(work_->shown(job, {workspace, experiment, job.name}));
  }
  if (list.next) result.next = std::to_string(*list.next);
  return result;
}

resources::Job Service::job(const resources::JobName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return work_->shown(ledger.job(name), name);
}

std::string Service::code_of(const resources::JobName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return ledger.job(name).code;
}

spec::JobSpec Service::pinned(const resources::JobName& name, const resources::Submission& submission) {
  spec::JobSpec job = without_digest(submission.spec);
  if (!job.container_settings) return job;
  std::optional<spec::ClusterSpec> cluster;
  {
    Ledger& ledger = work_->ledger;
    const MutexLock lock(ledger.mutex);
    const catalog::Experiment experiment = ledger.experiment({name.workspace, name.experiment});
    if (ledger.catalog.jobs().find(experiment.id, name.job)) return job;
    cluster = stored_spec(ledger.cluster(submission.cluster)).spec;
  }
  if (!cluster || node::why_no_container(job, *cluster)) return job;  // Which is said below.
  return with_digest(work_->dispatcher, std::move(job), *cluster, submission.cluster.cluster);
}

resources::Created<resources::Job> Service::submit(const resources::JobName& name,
                                                   const resources::Submission& submission) {
  const spec::JobSpec job = pinned(name, submission);  // Before the lock: it may ask a registry.
  const KeptSpec text = kept(job);
  resources::Created<resources::Job> created;
  {
    Ledger& ledger = work_->ledger;
    const MutexLock lock(ledger.mutex);
    const catalog::Experiment experiment = ledger.experiment({name.workspace, name.experiment});
    const catalog::Cluster cluster = ledger.cluster(submission.cluster);
    if (const auto found = ledger.catalog.jobs().find(experiment.id, name.job)) {
      const bool same = is_same(*found, without_digest(submission.spec)) && found->cluster == cluster.id &&
                        found->code == submission.code && found->submitter == submission.sender.name;
      if (same) return {work_->shown(*found, name), false};
      throw ServiceError(
          ServiceError::Kind::kConflict, "JobExists",
          fmt::format(
              "job '{}' exists in experiment '{}' with other properties, or of another user; jobs cannot be changed",
              name.job, name.experiment));
    }
    if (cluster.provisioning_state == resources::ProvisioningState::kDeleting) {
      throw ServiceError(ServiceError::Kind::kConflict, "ClusterDeleting",
                         fmt::format("cluster '{}' is being deleted", cluster.name));
    }
    if (!submission.code.empty() && !ledger.code.has(experiment.workspace, submission.code)) {
      throw ServiceError(ServiceError::Kind::kNotFound, "CodeNotFound",
                         fmt::format("there is no archive of code {}; upload it before", submission.code),
                         submission.code);
    }
    check_reserve(work_->options.folder, text.text.size(), work_->options.keep_free_bytes / kReservesPerJobReserve,
                  "no more jobs", "");
    const auto its_cluster = stored_spec(cluster);
    if (!its_cluster.spec) {
      throw ServiceError(ServiceError::Kind::kConflict, kUnreadableCluster,
                         fmt::format("cluster '{}' cannot be used: {}", cluster.name, its_cluster.problem));
    }
    const bool by_account = work_->options.submitters == Submitters::kAccounts;
    const std::string account = by_account ? account_for_jobs(work_->options, ledger.user(submission.sender.name)) : "";
    check_share_of_queue(work_->options, ledger.catalog, submission.sender);
    check_node_count(job, *its_cluster.spec, cluster.name);
    check_container(job, *its_cluster.spec, cluster.name);
    check_code_is_there(job, submission.code);
    check_places(job, *its_cluster.spec, cluster.name);
    check_resources(work_->dispatcher, job, *its_cluster.spec, cluster.name);
    const catalog::Job made = ledger.catalog.jobs().create({.experiment = experiment.id,
                                                            .cluster = cluster.id,
                                                            .name = name.job,
                                                            .spec = text.text,
                                                            .secrets = text.secrets,
                                                            .code = submission.code,
                                                            .submitter = submission.sender.name,
                                                            .account = account});
    created = {work_->shown(made, name), true};
  }
  work_->changed();
  return created;
}

resources::Job Service::terminate(const resources::JobName& name) {
  resources::Job job;
  {
    const MutexLock lock(work_->ledger.mutex);
    work_->ledger.catalog.jobs().terminate(work_->ledger.job(name).id, {"request", "terminated by a user"});
    job = work_->shown(work_->ledger.job(name), name);
  }
  work_->changed();
  return job;
}

resources::Job Service::terminate_without_nodes(const resources::JobName& name) {
  resources::Job job;
  {
    Ledger& ledger = work_->ledger;
    const MutexLock lock(ledger.mutex);
    const catalog::Job found = ledger.job(name);
    const std::string cluster = ledger.catalog.clusters().get(found.cluster).name;
    const auto problem = work_->dispatcher.problem_of(found.cluster);
    if (!problem) {
      throw ServiceError(
          ServiceError::Kind::kConflict, "ClusterUsable",
          fmt::format("cluster '{}' can be used: the job is ended with its processes; --force is for jobs "
                      "whose cluster does not answer",
                      cluster));
    }
    ledger.catalog.together([&]() GYRE_REQUIRES(ledger.mutex) {
      ledger.catalog.jobs().terminate(found.id, {"request", "terminated by a user"});
      for (const catalog::Attempt& attempt : ledger.catalog.attempts().list(found.id)) {
        if (attempt.state != resources::AttemptState::kEnded) leave_running(ledger, attempt, cluster, *problem);
      }
    });
    job = work_->shown(ledger.job(name), name);
  }
  work_->changed();
  return job;
}

resources::Job Service::retry(const resources::JobName& name) {
  resources::Job job;
  {
    Ledger& ledger = work_->ledger;
    const MutexLock lock(ledger.mutex);
    const catalog::Job found = ledger.job(name);
    check_retry(ledger, found);
    ledger.catalog.jobs().retry(found.id, {"request", "queued again by a user"});
    ledger.retries.erase(found.id);
    job = work_->shown(ledger.job(name), name);
  }
  work_->changed();
  return job;
}

void Service::delete_job(const resources::JobName& name) {
  {
    const MutexLock lock(work_->ledger.mutex);
    work_->ledger.catalog.jobs().start_deletion(work_->ledger.job(name).id, {"request", "deleted by a user"});
  }
  work_->changed();
}

resources::Explanation Service::why(const resources::JobName& name) {
  catalog::Job job;
  std::string news;
  {
    const Readers::Loan reader = work_->readers.borrow();
    const MutexLock lock(reader.ledger().mutex);
    job = reader.ledger().job(name);
    news = start_news(reader.ledger(), job.id);
  }
  const std::string state(resources::name(job.execution_state));
  if (job.execution_state == resources::ExecutionState::kTerminating) {
    if (const auto problem = work_->dispatcher.problem_of(job.cluster)) {
      return {.reason = "clusterUnusable",
              .message = "the job is being ended, and its cluster cannot be used: " + *problem,
              .remedies = {"it ends as soon as the cluster can be used again",
                           "gyre job stop --force ends it without "
                           "its nodes, on which it may go on"}};
    }
  }
  if (job.execution_state == resources::ExecutionState::kQueued) {
    if (auto explanation = work_->dispatcher.explain(job.id)) return *explanation;
    const MutexLock lock(work_->ledger.mutex);
    if (const std::string wait = work_->ledger.wait_of(job.id); !wait.empty()) {
      return {.reason = "gpus",
              .message = "it has its nodes, and " + wait,
              .remedies = {"with gpusPerNode 0 (--gpus-per-node 0) it would need no GPUs"}};
    }
    return {.reason = "startsNow", .message = "its nodes are being given to it"};
  }
  if (job.execution_state == resources::ExecutionState::kFailed && job.error) {
    return {.reason = job.error->code, .message = job.error->message};
  }
  const std::string sentence = state_sentence(job.execution_state, job.attempts);
  const bool runs = job.execution_state == resources::ExecutionState::kRunning;
  return {.reason = state, .message = runs && !news.empty() ? sentence + ", and has not begun: " + news : sentence};
}

std::vector<resources::OutputDirectory> Service::output_directories(const resources::JobName& name) {
  catalog::Job job;
  {
    const Readers::Loan reader = work_->readers.borrow();
    const MutexLock lock(reader.ledger().mutex);
    job = reader.ledger().job(name);
  }
  return work_->dispatcher.output_directories(job);
}

bool Service::files_are_complete(const resources::JobName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return resources::is_finished(ledger.job(name).execution_state);
}

int Service::attempts_of(const resources::JobName& name) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  return ledger.job(name).attempts;
}

std::shared_ptr<void> Service::room_for_code(const resources::User& user, const std::string& workspace,
                                             const std::string& sha256, std::uint64_t bytes) {
  Ledger& ledger = work_->ledger;
  const catalog::Id id = [&] {
    const MutexLock lock(ledger.mutex);
    return ledger.workspace(workspace).id;
  }();
  CodeLimits limits{.keep_free_bytes = work_->options.keep_free_bytes};
  if (work_->options.submitters != Submitters::kEverybody) limits.bytes_per_user = work_->options.code_bytes_per_user;
  return ledger.code.room_for(id, sha256, user.name, bytes, limits);
}

void Service::store_code(const resources::User& user, const std::string& workspace, const std::string& sha256,
                         UniqueFd archive, std::uint64_t /*bytes*/) {
  Ledger& ledger = work_->ledger;
  const catalog::Id id = [&] {
    const MutexLock lock(ledger.mutex);
    return ledger.workspace(workspace).id;
  }();
  if (ledger.code.has(id, sha256)) return;
  check_code(archive);
  ledger.code.store(id, sha256, user.name, archive);
}

bool Service::has_code(const std::string& workspace, const std::string& sha256) {
  Ledger& ledger = work_->ledger;
  const MutexLock lock(ledger.mutex);
  return ledger.code.keep_for_a_day(ledger.workspace(workspace).id, sha256);
}

}  // namespace gyre::jobs::service
