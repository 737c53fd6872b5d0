#include "gyre/jobs/service/internal/restore.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <tuple>

#include "gyre/base/error.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

/// In the order of their numbers, so that a job goes through its attempts as it did.
int enter_ends(Ledger& ledger, const ServiceOptions& options) GYRE_REQUIRES(ledger.mutex) {
  std::vector<EndedAttempt> ends = ledger.ends.read();
  std::ranges::sort(ends, {}, [](const EndedAttempt& each) { return std::tie(each.number, each.job, each.ended); });
  int entered = 0;
  for (EndedAttempt& each : ends) {
    const auto job = ledger.catalog.jobs().find_by_uuid(each.job);
    if (!job || job->execution_state == resources::ExecutionState::kSucceeded) continue;
    each.end.cause.message +=
        fmt::format("{}(it ended after the backup was made)", each.end.cause.message.empty() ? "" : " ");
    try {
      entered +=
          ledger.catalog.attempts().adopt_end(job->id, each.number, each.nodes, each.started, each.ended, each.end) ? 1
                                                                                                                    : 0;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      options.logger->warn("attempt {} of job '{}', which ended after the backup was made, is not entered: {}",
                           each.number, job->name, error.what());
    }
  }
  return entered;
}

int fail_without_code(Ledger& ledger) GYRE_REQUIRES(ledger.mutex) {
  int failed = 0;
  for (const catalog::Job& job : ledger.catalog.jobs().unfinished()) {
    if (job.code.empty() || ledger.code.has(job.workspace, job.code)) continue;
    if (job.execution_state != resources::ExecutionState::kQueued) continue;  // It may run already.
    const auto attempts = ledger.catalog.attempts().list(job.id);
    if (!attempts.empty() && attempts.back().state != resources::AttemptState::kEnded) continue;
    ledger.catalog.jobs().fail(job.id, {kCodeNotFound, kNoCode});
    ++failed;
  }
  return failed;
}

}  // namespace

void take_back(Ledger& ledger, const ServiceOptions& options) {
  ledger.catalog.skip_numbers();
  ledger.catalog.take_code([&](const catalog::CodeKey& code) { return ledger.code.path(code.workspace, code.sha256); });
  const int ended = enter_ends(ledger, options);
  const int failed = fail_without_code(ledger);
  options.logger->info(
      "the catalog was restored from a backup; {} attempts have ended since it was made, {} jobs cannot run because "
      "their code is not there; what nodes still run is looked for before anything starts",
      ended, failed);
}

}  // namespace gyre::jobs::service
