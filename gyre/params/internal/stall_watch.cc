#include "gyre/params/internal/stall_watch.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <utility>

#include "gyre/base/thread.h"
#include "gyre/params/internal/board.h"

namespace gyre::params::internal {
namespace {

constexpr std::chrono::seconds kLongestSleep{60};

std::int64_t seconds_since(SteadyClock::time_point since, SteadyClock::time_point now) {
  return std::chrono::duration_cast<std::chrono::seconds>(now - since).count();
}

}  // namespace

std::vector<std::string> names_of_workers(const group::Group& group, const Layout& layout) {
  std::vector<std::string> names;
  for (int worker = 0; worker < layout.workers; ++worker) {
    const group::Member& member = group.topology().member(layout.rank_of_worker(worker));
    names.push_back(fmt::format("worker {} (host {}, pid {})", worker, member.host_name, member.process));
  }
  return names;
}

StallWatch::StallWatch(std::vector<std::string> names, const ServerOptions& options, Fail fail)
    : names_(std::move(names)), options_(options), fail_(std::move(fail)), workers_(names_.size()) {
  for (Worker& worker : workers_) worker.since = SteadyClock::now();
  if (options.stall_warning.count() > 0 || options.stall_failure.count() > 0) {
    thread_ = start_thread("a parameter server's watch", [this] { watch(); });
  }
}

StallWatch::~StallWatch() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void StallWatch::note(int worker, const Request& request, std::size_t values, std::uint64_t steps) {
  switch (request.kind) {
    case RequestKind::kStep:
    case RequestKind::kStepInPlace: return asks(worker, fmt::format("in its step {}", request.step), values);
    case RequestKind::kAnnounce: return asks(worker, fmt::format("before its step {}", steps + 1), 1);
    case RequestKind::kPull: return asks(worker, "for the servers' parameters", values);
    case RequestKind::kSum: return asks(worker, place_of(static_cast<Meeting>(request.step)), 1);
    default: return asks(worker, "talking to the servers", 0);
  }
}

void StallWatch::asks(int worker, std::string_view where, std::size_t answers) {
  const MutexLock lock(mutex_);
  Worker& one = workers_.at(static_cast<std::size_t>(worker));
  one.where = where;
  one.answers = answers;
  one.since = SteadyClock::now();
  one.reported = false;
}

void StallWatch::answered(int worker) {
  const MutexLock lock(mutex_);
  Worker& one = workers_.at(static_cast<std::size_t>(worker));
  if (one.answers == 0) return;
  --one.answers;
  if (one.answers == 0) one.since = SteadyClock::now();
}

void StallWatch::gone(int worker) {
  const MutexLock lock(mutex_);
  Worker& one = workers_.at(static_cast<std::size_t>(worker));
  one.answers = 0;
  one.gone = true;
}

std::string StallWatch::describe(SteadyClock::time_point now) const {
  std::string text;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.gone) continue;
    const auto seconds = seconds_since(worker.since, now);
    if (!text.empty()) text += "; ";
    if (worker.answers > 0) {
      text += fmt::format("{} has waited {} s {}", names_[i], seconds, worker.where);
    } else if (worker.where.empty()) {
      text += fmt::format("{} has not made its optimizer yet, {} s after the start", names_[i], seconds);
    } else {
      text += fmt::format("{} has not asked the servers for anything for {} s; it was last {}", names_[i], seconds,
                          worker.where);
    }
  }
  return text;
}

/// When a worker that waits now will have waited too long; one that begins later is not due before `limit`.
SteadyClock::time_point StallWatch::next_look() const {
  SteadyClock::time_point next = SteadyClock::time_point::max();
  const auto now = SteadyClock::now();
  const auto add = [&](std::chrono::milliseconds limit, bool done, const Worker& worker) {
    if (limit.count() == 0 || done) return;
    next = std::min({next, now + limit, worker.answers > 0 ? worker.since + limit : now + limit});
  };
  for (const Worker& worker : workers_) {
    add(options_.stall_warning, worker.answers > 0 && worker.reported, worker);
    add(options_.stall_failure, failed_, worker);
  }
  return std::min(next, now + kLongestSleep);
}

void StallWatch::watch() {
  MutexLock lock(mutex_);
  while (!stops_) {
    const auto next = next_look();
    if (next > SteadyClock::now()) {
      changed_.wait_until(mutex_, next);
    } else if (const auto failure = look()) {
      lock.unlock();  // The server has a mutex of its own, under which it reports to this object.
      fail_(*failure);
      lock.lock();
    }
  }
}

/// One report for all that wait; the failure if one has waited too long.
std::optional<Error> StallWatch::look() {
  const auto now = SteadyClock::now();
  bool fails = false;
  bool reports = false;
  for (Worker& worker : workers_) {
    if (worker.answers == 0) continue;
    const auto waited = now - worker.since;
    fails = fails || (options_.stall_failure.count() > 0 && waited >= options_.stall_failure);
    reports = reports || (options_.stall_warning.count() > 0 && waited >= options_.stall_warning && !worker.reported);
  }
  const std::string text = describe(now);
  if (reports) {
    for (Worker& worker : workers_) worker.reported = worker.answers > 0;
    if (options_.logger) options_.logger->warn("workers wait for each other at the parameter servers: {}", text);
  }
  if (!fails) return std::nullopt;
  failed_ = true;
  return Error(ErrorCode::kTimeout,
               fmt::format("a worker has waited longer than GYRE_STALL_FAILURE_SECONDS for the others: {}", text));
}

}  // namespace gyre::params::internal
