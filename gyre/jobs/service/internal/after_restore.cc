#include "gyre/jobs/service/internal/after_restore.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/process_stat.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/service/internal/attempt_end.h"
#include "gyre/jobs/service/internal/orders.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

const catalog::Cause kFound{kRestored, "a node of it runs this attempt, which began after the backup was made"};

/// "UUID-NUMBER"
std::pair<std::string, int> parts_of(const std::string& attempt) {
  const std::size_t dash = attempt.rfind('-');
  int number = 0;
  if (dash != std::string::npos) std::from_chars(attempt.data() + dash + 1, attempt.data() + attempt.size(), number);
  return {attempt.substr(0, dash), number};
}

}  // namespace

bool AfterRestore::look_around(drivers::Driver& driver) {
  std::vector<orders::WorkOrder> asked;
  std::set<std::string> jobs;
  std::set<std::string> known;
  {
    const MutexLock lock(ledger_.mutex);
    if (!ledger_.restored) return false;
    if (!ledger_.taken_back) {
      throw Error(ErrorCode::kUnsupported,
                  "the server was restored from a backup, and what it knows cannot be written down: its log says why");
    }
    jobs = jobs_that_may_run();
    if (!jobs.empty()) wait_for_other_machines(driver, *ledger_.restored);
    for (const catalog::Attempt& attempt : clusters_.attempts(ledger_)) {
      try {
        asked.push_back(order_of(ledger_, options_, driver, attempt, true));
      } catch (const Error&) {
        known.insert(attempt.id);  // take_over() gives it up.
      }
    }
  }
  const drivers::AtNodes found = driver.at_nodes(asked);
  known.insert(found.known.begin(), found.known.end());
  for (const orders::WorkOrder& order : found.orders) known.insert(order.attempt);
  if (const std::string left = driver.end_strays(jobs, known); !left.empty()) {
    throw Error(ErrorCode::kUnsupported, "the server was restored from a backup, and nothing starts yet: " + left);
  }
  const MutexLock lock(ledger_.mutex);
  end_unknown(known);
  enter(found);
  return true;
}

std::set<std::string> AfterRestore::jobs_that_may_run() {
  std::set<std::string> uuids;
  for (const catalog::Id cluster : clusters_.all()) uuids.merge(ledger_.catalog.jobs().uuids_of_unsuccessful(cluster));
  return uuids;
}

void AfterRestore::wait_for_other_machines(const drivers::Driver& driver, const catalog::BackupMark& mark) {
  if (driver.sees_all_machines() || (!mark.view.empty() && mark.view == view_of_processes())) return;
  const auto lease = std::max(options_.lease, std::chrono::milliseconds(mark.lease_ms));
  const auto until = lease + options_.margin;
  if (SteadyClock::now() - made_ >= until) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("the server was restored from a backup that was made on another machine, or before this one "
                  "was restarted; nothing starts for the first {} s, within which the nodes there end what they "
                  "run without a server",
                  std::chrono::ceil<std::chrono::seconds>(until).count()));
}

void AfterRestore::end_unknown(const std::set<std::string>& known) {
  for (const catalog::Attempt& attempt : clusters_.attempts(ledger_)) {
    if (!ledger_.is_inherited(attempt.id) || known.contains(attempt.id)) continue;
    hub::AttemptResult result;
    result.exit_code = resources::kNotTheJobsExitCode;
    result.error =
        resources::ResourceError{resources::error_code::kInternal,
                                 "the server was restored from a backup, and none of the attempt's nodes knows it",
                                 {{"reason", kRestored}}};
    write_end(ledger_, options_, attempt, result);
    ledger_.live.erase(attempt.id);
  }
}

void AfterRestore::enter(const drivers::AtNodes& found) {
  std::vector<orders::WorkOrder> sorted = found.orders;
  std::ranges::sort(sorted, {},
                    [](const orders::WorkOrder& order) { return std::tie(order.attempt_number, order.attempt); });
  const std::vector<catalog::Attempt> own = clusters_.attempts(ledger_);
  for (const drivers::EndedOrder& ended : found.ended) {
    if (std::ranges::find(own, ended.order.attempt, &catalog::Attempt::id) != own.end()) continue;
    const auto [uuid, number] = parts_of(ended.order.attempt);
    const auto job = ledger_.catalog.jobs().find_by_uuid(uuid);
    if (job && clusters_.contains(job->cluster)) enter_end(ledger_, options_, *job, number, ended);
  }
  unwanted_.clear();
  for (const orders::WorkOrder& order : sorted) {
    if (std::ranges::find(own, order.attempt, &catalog::Attempt::id) != own.end()) {
      if (found.known.contains(order.attempt)) continue;
      // The nodes that do not know it would begin it.
      ledger_.catalog.attempts().plan_end(order.attempt, resources::EndIntent::kRequeue,
                                          {kRestored, "not all of its nodes know it"});
      continue;
    }
    const auto [uuid, number] = parts_of(order.attempt);
    const auto job = ledger_.catalog.jobs().find_by_uuid(uuid);
    std::vector<catalog::AttemptNode> nodes;
    for (const orders::NodePlace& place : order.nodes) nodes.push_back({0, place.id});
    if (job && clusters_.contains(job->cluster) && ledger_.catalog.attempts().adopt(job->id, number, nodes, kFound)) {
      ledger_.live[order.attempt] = {.job = job->id, .started = SteadyClock::now(), .inherited = true};
      continue;
    }
    options_.logger->warn("attempt {} of job '{}', which the backup does not have, is ended", order.attempt,
                          order.job_name);
    unwanted_.push_back(order);
  }
}

bool AfterRestore::settle(const drivers::Event& event, drivers::Driver& driver) {
  const auto found = std::ranges::find(unwanted_, event.attempt, &orders::WorkOrder::attempt);
  if (event.attempt.empty() || found == unwanted_.end()) return false;
  if (event.kind != drivers::Event::Kind::kEnded) return true;
  driver.acknowledge(event.attempt);
  for (const orders::NodePlace& node : found->nodes) {
    const MutexLock lock(ledger_.mutex);
    if (!ledger_.catalog.nodes().find(node.id)) driver.release(node.id);
  }
  unwanted_.erase(found);
  return true;
}

}  // namespace gyre::jobs::service
