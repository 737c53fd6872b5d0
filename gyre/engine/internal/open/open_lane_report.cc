// What an open lane knows about waits: for the search for deadlocks, and for its statistics.

#include <algorithm>
#include <utility>

#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/open/open_lane.h"

namespace gyre::engine::internal {

LaneStatistics OpenLane::statistics() const {
  const MutexLock lock(mutex_);
  return {"open", lane_.counters(), awaited_.so_far()};
}

void OpenLane::time_the_wait() {
  if (executes_ || in_flight_.empty()) {
    awaited_.stop();
  } else {
    awaited_.start();
  }
}

ProcessWaits::Source::Report OpenLane::report() {
  Report report;
  report.state.engine = engine_;
  std::vector<std::pair<Handle, Awaited>> in_flight;
  {
    const MutexLock lock(mutex_);
    report.state.joined = in_flight_.contains(std::string(kJoinName));
    report.state.complete = in_flight_.size() + reserved_.size() <= EngineState::kMostOperations;
    if (report.state.complete) report.state.operations.assign(reserved_.begin(), reserved_.end());
    for (const auto& [name, pending] : in_flight_) {
      if (report.state.complete) report.state.operations.push_back(name);
      if (pending.handle.waiting_threads().empty()) continue;
      in_flight.emplace_back(pending.handle, Awaited{.engine = report.state.engine,
                                                     .operation = name,
                                                     .serial = pending.serial,
                                                     .description = describe_operation(pending.request)});
    }
  }
  for (const auto& [handle, awaited] : in_flight) {
    for (const ThreadIdentity& thread : handle.waiting_threads()) report.waits.emplace_back(thread, awaited);
  }
  plans_.report(report);
  return report;
}

void OpenLane::keep_report(const DeadlockReport& report) {
  if (std::ranges::find(report.engines, engine_.load()) == report.engines.end()) return;
  const MutexLock lock(mutex_);
  deadlock_ = report;
}

std::optional<DeadlockReport> OpenLane::kept_report() {
  const MutexLock lock(mutex_);
  return deadlock_;
}

void OpenLane::fail_with_report() {
  if (const auto report = kept_report()) group_.abort(report->error());
}

}  // namespace gyre::engine::internal
