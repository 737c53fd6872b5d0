#include "gyre/jobs/service/internal/attempt_end.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

using resources::EndIntent;
using resources::NodeState;

bool is_not_the_jobs(const resources::ResourceError& error) {
  return error.code == resources::error_code::kInternal || error.code == resources::error_code::kUnusablePath;
}

/// In one word, where an attempt ended without having failed: its node could not reach the service, had no room for it
/// or could not be reached by the job's launcher, or a restored service does not know it. Otherwise empty.
std::string loss_of(const std::optional<resources::ResourceError>& error) {
  if (!error || error->code != resources::error_code::kInternal) return "";
  const auto reason = error->details.find("reason");
  if (reason == error->details.end()) return "";
  if (reason->second == orders::kNoRoom || reason->second == orders::kNotStarted) return reason->second;
  const bool lost = reason->second == orders::name_of(orders::StopReason::kLeaseLost) || reason->second == kRestored;
  return lost ? "nodeLost" : "";
}

/// How the job goes on after it.
catalog::AttemptEnd end_of(Ledger& ledger, const ServiceOptions& options, const catalog::Attempt& attempt,
                           const hub::AttemptResult& result) GYRE_REQUIRES(ledger.mutex) {
  using Counts = catalog::AttemptEnd::Counts;
  catalog::AttemptEnd end;
  const bool terminated = attempt.end_intent == EndIntent::kTerminate;
  const catalog::Job job = ledger.catalog.jobs().get(attempt.job);
  const RetryLimits limits = retry_limits(stored_spec(job).spec.value_or(spec::JobSpec{}));
  const std::string loss = !result.lost.empty() && !result.hopeless ? "nodeLost" : loss_of(result.error);
  const bool lost = !loss.empty();
  const bool after_loss = lost && job.losses < limits.after_loss;
  const bool after_failure =
      !lost && result.error && is_not_the_jobs(*result.error) && job.retries < limits.after_other_failure;
  if (!terminated && (result.preempted || after_loss || after_failure)) {
    end.outcome = catalog::AttemptEnd::Outcome::kRequeued;
    if (result.preempted) {
      end.cause = {"preempted", "its nodes were needed for other jobs"};
      return end;
    }
    const auto pause = retry_pause(job.losses + job.retries, options.retry_pause, options.longest_retry_pause);
    end.counts = after_loss ? Counts::kLoss : Counts::kRetry;
    end.retry = options.wall_clock() + std::chrono::microseconds(pause).count();
    const std::string count = after_loss
                                  ? fmt::format("{} of {} after losses", job.losses + 1, limits.after_loss)
                                  : fmt::format("{} of {} after failures", job.retries + 1, limits.after_other_failure);
    end.cause = {after_loss ? loss : "retry", fmt::format("{}; the next attempt ({}) begins in {:g} s at the earliest",
                                                          result.error ? result.error->message : "", count,
                                                          std::chrono::duration<double>(pause).count())};
  } else if (result.error) {
    end.outcome = catalog::AttemptEnd::Outcome::kFailed;
    end.exit_code = result.exit_code;
    end.error = result.error;
    end.cause = {end.error->code, end.error->message};
  } else if (result.preempted) {
    // Terminated by somebody while it was ended to be queued again.
    end.outcome = catalog::AttemptEnd::Outcome::kFailed;
    end.exit_code = resources::kTerminatedExitCode;
    end.error =
        resources::ResourceError{resources::error_code::kJobFailed, "the job was terminated", {{"reason", "request"}}};
    end.cause = {end.error->code, end.error->message};
  } else {
    end.exit_code = 0;
    end.cause = {"succeeded", ""};
  }
  return end;
}

catalog::AttemptEnd record_end(Ledger& ledger, const ServiceOptions& options, const catalog::Attempt& attempt,
                               const hub::AttemptResult& result) GYRE_REQUIRES(ledger.mutex) {
  for (const std::string& name : result.lost) {
    const auto node = ledger.catalog.nodes().find(name);
    if (node && node->state == NodeState::kRunning) {
      ledger.catalog.nodes().change(node->id, NodeState::kLost, {"nodeLost", "lost during attempt " + attempt.id});
    }
  }
  catalog::AttemptEnd end = end_of(ledger, options, attempt, result);
  ledger.catalog.attempts().confirm_end(attempt.id, end);
  // The node programs have cleaned their nodes before they report the end.
  for (const catalog::AttemptNode& each : attempt.nodes) {
    const auto node = ledger.catalog.nodes().find(each.name);
    if (node && node->state == NodeState::kPreparing) {
      ledger.catalog.nodes().change(node->id, NodeState::kIdle, {"clean", "clean after attempt " + attempt.id});
    }
  }
  return end;
}

/// Until when the job waits for its next attempt, and that it has ended so.
void note_end(Ledger& ledger, const ServiceOptions& options, catalog::Id job, EndedAttempt ended)
    GYRE_REQUIRES(ledger.mutex) {
  if (ended.end.retry) {
    const auto pause = std::chrono::microseconds(*ended.end.retry - options.wall_clock());
    ledger.retries[job] = SteadyClock::now() + pause;
  }
  ledger.ends.append(ended);
}

}  // namespace

void write_end(Ledger& ledger, const ServiceOptions& options, const catalog::Attempt& attempt,
               const hub::AttemptResult& result) {
  catalog::AttemptEnd end;
  ledger.catalog.together([&]() GYRE_REQUIRES(ledger.mutex) { end = record_end(ledger, options, attempt, result); });
  const catalog::Attempt ended = ledger.catalog.attempts().get(attempt.id);
  note_end(ledger, options, attempt.job,
           {.job = ledger.catalog.jobs().get(attempt.job).uuid,
            .number = attempt.number,
            .nodes = attempt.nodes,
            .started = ended.started.value_or(ended.planned),
            .ended = ended.ended.value_or(ended.planned),
            .end = std::move(end)});
}

bool enter_end(Ledger& ledger, const ServiceOptions& options, const catalog::Job& job, int number,
               const drivers::EndedOrder& ended) {
  EndedAttempt entry{
      .job = job.uuid, .number = number, .started = ended.result.started_us, .ended = ended.result.ended_us};
  for (const orders::NodePlace& place : ended.order.nodes) {
    const auto node = ledger.catalog.nodes().find(place.id);
    entry.nodes.push_back({node ? node->id : 0, place.id});
  }
  catalog::Attempt attempt;
  attempt.job = job.id;
  entry.end = end_of(ledger, options, attempt, ended.result);
  if (!ledger.catalog.attempts().adopt_end(job.id, number, entry.nodes, entry.started, entry.ended, entry.end)) {
    return false;
  }
  note_end(ledger, options, job.id, std::move(entry));
  return true;
}

}  // namespace gyre::jobs::service
