// The streams between users and the nodes of their jobs (ADR 134, 137).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/redactor.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/internal/accounts.h"
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/internal/work.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

using resources::ServiceError;

namespace {

/// As jobs spread their ranks over the nodes, in blocks.
std::size_t node_of_rank(const spec::JobSpec& job, std::size_t nodes, int rank) {
  const int ranks = std::max(spec::process_count(job), static_cast<int>(nodes));
  int first = 0;
  std::size_t node = 0;
  for (const int count : node::spread(ranks, static_cast<int>(nodes))) {
    first += count;
    if (rank < first) return node;
    ++node;
  }
  throw ServiceError(ServiceError::Kind::kInvalid, "NoSuchRank",
                     fmt::format("the job has no rank {}; there are 0 to {}", rank, ranks - 1), "rank");
}

std::size_t node_named(const catalog::Attempt& attempt, const std::string& name) {
  constexpr std::size_t kMostShown = 10;
  const auto found = std::ranges::find(attempt.nodes, name, &catalog::AttemptNode::name);
  if (found != attempt.nodes.end()) return static_cast<std::size_t>(found - attempt.nodes.begin());
  std::vector<std::string> names;
  for (const catalog::AttemptNode& node : attempt.nodes) {
    if (names.size() == kMostShown) break;
    names.push_back(node.name);
  }
  const std::size_t more = attempt.nodes.size() - names.size();
  throw ServiceError(ServiceError::Kind::kInvalid, "NoSuchNode",
                     fmt::format("the job does not run on a node '{}'; it runs on {}{}", name, fmt::join(names, ", "),
                                 more == 0 ? "" : fmt::format(" and {} others", more)),
                     "node");
}

}  // namespace

struct Service::StreamPlace {
  spec::ClusterSpec cluster;
  orders::StreamRequest request;
  std::size_t node = 0;
};

Service::StreamPlace Service::stream_place(const resources::User& user, const resources::JobName& name,
                                           const StreamTarget& target) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const catalog::Job job = ledger.job(name);
  // Its name may be another one's by now, with an account of its own.
  const auto has_its_account = [&]() GYRE_REQUIRES(ledger.mutex) {
    return job.account.empty() || account_for_jobs(work_->options, ledger.user(user.name)) == job.account;
  };
  if (!user.is_administrator && (job.submitter != user.name || !has_its_account())) {
    throw ServiceError(ServiceError::Kind::kForbidden, "NotYourJob",
                       fmt::format("only user '{}', who submitted job '{}', and administrators can reach its nodes",
                                   job.submitter, name.job));
  }
  const std::vector<catalog::Attempt> attempts = ledger.catalog.attempts().list(job.id);
  const auto job_spec = stored_spec(job);
  const auto cluster = stored_spec(ledger.catalog.clusters().get(job.cluster));
  const bool runs = job.execution_state == resources::ExecutionState::kRunning && !attempts.empty();
  if (!runs || !job_spec.spec || !cluster.spec) {
    throw ServiceError(
        ServiceError::Kind::kConflict, "JobNotRunning",
        fmt::format("job '{}' does not run: it {} {}", name.job,
                    resources::is_finished(job.execution_state) ? "has" : "is", resources::name(job.execution_state)));
  }
  const catalog::Attempt& attempt = attempts.back();
  StreamPlace place{.cluster = *cluster.spec,
                    .request = {.attempt = attempt.id, .port = target.port, .command = target.command}};
  place.node = target.node.empty() ? node_of_rank(*job_spec.spec, attempt.nodes.size(), target.rank)
                                   : node_named(attempt, target.node);
  if (place.request.command && target.node.empty()) place.request.command->rank = target.rank;
  return place;
}

std::vector<std::string> Service::without_secrets(const resources::JobName& name,
                                                  const std::vector<std::string>& words) {
  const Readers::Loan reader = work_->readers.borrow();
  Ledger& ledger = reader.ledger();
  const MutexLock lock(ledger.mutex);
  const catalog::Job job = ledger.job(name);
  const std::vector<catalog::Attempt> attempts = ledger.catalog.attempts().list(job.id);
  // Whose secrets are gone, too.
  if (attempts.empty() || attempts.back().state == resources::AttemptState::kEnded) return {"(not shown)"};
  orders::WorkOrder order;
  order.job = job_spec(job.spec, ledger.catalog.attempts().secrets(attempts.back().id));
  const std::vector<std::string> secrets = node::secret_values(order);
  std::vector<std::string> shown;
  for (const std::string& word : words) {
    node::Redactor redactor(secrets);
    std::string text = redactor.pass(word);
    text += redactor.finish();
    shown.push_back(std::move(text));
  }
  return shown;
}

std::shared_ptr<hub::NodeStream> Service::open_stream(const resources::User& user, const resources::JobName& name,
                                                      const StreamTarget& target) {
  const StreamPlace place = stream_place(user, name, target);
  return work_->dispatcher.open_stream(place.cluster, place.request, place.node);
}

void Service::check_stream(const resources::User& user, const resources::JobName& name, const StreamTarget& target) {
  stream_place(user, name, target);
}

}  // namespace gyre::jobs::service
