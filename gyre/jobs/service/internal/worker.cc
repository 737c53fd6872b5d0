#include "gyre/jobs/service/internal/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/service/internal/attempt_end.h"
#include "gyre/jobs/service/internal/orders.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

using resources::AttemptState;
using resources::EndIntent;
using resources::NodeState;

/// From a request to end until the job's processes are killed.
constexpr std::chrono::seconds kGrace{10};
/// While something runs: the driver has clocks of its own.
constexpr int kTurnMs = 1'000;
/// After a catalog that cannot be written, or a driver that cannot be made.
constexpr int kPauseAfterFailureMs = 1'000;
/// Until a driver that has not come back counts as one that does not answer.
constexpr std::chrono::seconds kLongestWork{10};

std::int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now().time_since_epoch()).count();
}

/// Of the catalog's failures: the others come again however often the same thing is tried.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::kResourceExhausted || code == ErrorCode::kIo || code == ErrorCode::kTimeout;
}

constexpr const char* kPrepared = "prepared";
/// Of a job whose attempt is planned.
constexpr const char* kWaitsForDriver = "waitsForGpus";

hub::AttemptResult refused(const std::string& code, const std::string& why) {
  hub::AttemptResult result;
  result.exit_code = resources::kNotTheJobsExitCode;
  result.error = resources::ResourceError{code, why, {}};
  return result;
}

}  // namespace

Worker::Worker(const Surroundings& surroundings, Drivers::Key key, bool restored)
    : surroundings_(surroundings),
      ledger_(surroundings.ledger),
      key_(std::move(key)),
      trouble_(surroundings.options.logger),
      after_restore_(surroundings.options, surroundings.ledger, clusters_) {
  const MutexLock lock(mutex_);
  if (restored) problem_ = "the server was restored from a backup, and looks for what its nodes still run";
}

void Worker::start() {
  thread_ = start_thread("a driver of the job service", [this] { run(); });
}

Worker::~Worker() {
  stopping_ = true;
  notifier_.notify();
  if (thread_.joinable()) thread_.join();
}

std::optional<std::string> Worker::problem() const {
  const std::int64_t since = working_since_ms_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::milliseconds(steady_ms() - since));
  if (since != 0 && seconds >= kLongestWork) {
    return fmt::format("its driver '{}' has not answered for {} s", key_.first, seconds.count());
  }
  const MutexLock lock(mutex_);
  return problem_;
}

void Worker::run() {
  while (!stopping_) {
    int pause_ms = kPauseAfterFailureMs;
    const bool had_problem = problem().has_value();
    working_since_ms_ = steady_ms();
    acted_ = false;
    try {
      pause_ms = turn();
      trouble_.pass();
    } catch (const std::exception& error) {
      trouble_.meet(error.what());
    }
    const bool was_late = problem().has_value() && !had_problem;
    working_since_ms_ = 0;
    if (!begun_.exchange(true) || acted_ || was_late || had_problem != problem().has_value()) surroundings_.acted();
    wait(pause_ms);
  }
}

void Worker::wait(int limit_ms) {
  std::array<pollfd, 2> sources = {{{notifier_.fd(), POLLIN, 0}, {driver_ == nullptr ? -1 : driver_->fd(), POLLIN, 0}}};
  ::poll(sources.data(), sources.size(), limit_ms);
  notifier_.clear();
}

int Worker::turn() {
  if (!is_ready()) return kPauseAfterFailureMs;
  for (drivers::Event& event : driver_->watch(Deadline::after(std::chrono::milliseconds(0)))) {
    unheard_.push_back(std::move(event));
  }
  hear_all();
  submit_planned();
  cancel_ending();
  release_nodes();
  const MutexLock lock(ledger_.mutex);
  return clusters_.attempts(ledger_).empty() ? -1 : kTurnMs;
}

bool Worker::is_ready() {
  if (driver_ != nullptr) return true;
  std::optional<std::string> problem;
  try {
    take_over();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const MutexLock lock(mutex_);
  if (problem && problem_ != problem) {
    surroundings_.options.logger->error("clusters of driver '{}' cannot be used: {}", key_.first, *problem);
  } else if (!problem && problem_) {
    surroundings_.options.logger->info("clusters of driver '{}' can be used again", key_.first);
  }
  problem_ = problem;
  return !problem;
}

/// What a service before this one had handed to the driver, or was about to.
void Worker::take_over() {
  drivers::Driver& driver = surroundings_.drivers.of(key_);
  acted_ |= after_restore_.look_around(driver);
  std::vector<orders::WorkOrder> orders;
  std::vector<std::string> given_up;
  std::set<std::string> nodes;
  std::map<std::string, Told> told;
  {
    const MutexLock lock(ledger_.mutex);
    for (const Attempt& attempt : clusters_.attempts(ledger_)) {
      if (!ledger_.is_inherited(attempt.id)) continue;  // submit_planned() and cancel_ending() see to it.
      if (auto order = order_to_continue(driver, attempt)) {
        // It had to wait for something, and still may have to.
        if (attempt.state != AttemptState::kStarted && driver.is_new(*order)) continue;
        orders.push_back(std::move(*order));
      } else {
        for (const catalog::AttemptNode& node : attempt.nodes) given_up.push_back(node.name);
      }
      // Also one that was only planned: it runs, or does from now on, and the driver must not refuse it any more.
      told[attempt.id] = Told::kSubmit;
    }
    for (const catalog::Node& node : ledger_.catalog.nodes().list()) nodes.insert(node.name);
  }
  // Those that nobody wants are known to the nodes alone: they end, and are reported, like the others.
  std::ranges::copy(after_restore_.unwanted(), std::back_inserter(orders));
  driver.reattach(orders);
  for (const orders::WorkOrder& order : after_restore_.unwanted())
    driver.cancel(order.attempt, orders::StopReason::kRequest, kGrace);
  told_ = std::move(told);
  // What still runs of attempts that were given up ends with their nodes.
  for (const std::string& node : given_up) driver.release(node);
  driver.retain(nodes);
  driver_ = &driver;
  taken_over_ = true;
}

std::optional<orders::WorkOrder> Worker::order_to_continue(const drivers::Driver& driver, const Attempt& attempt) {
  try {
    return order_of(ledger_, surroundings_.options, driver, attempt, true);
  } catch (const Error& error) {
    surroundings_.options.logger->error("attempt {} cannot be continued: {}", attempt.id, error.what());
    hub::AttemptResult result = refused(kUnreadableJob, error.what());
    for (const catalog::AttemptNode& node : attempt.nodes) result.lost.push_back(node.name);
    result.hopeless = true;
    unheard_.push_back({drivers::Event::Kind::kEnded, attempt.id, "", "", std::move(result)});
    return std::nullopt;
  }
}

std::vector<orders::WorkOrder> Worker::planned_orders(std::vector<std::string>& handed_over) {
  std::vector<orders::WorkOrder> orders;
  const MutexLock lock(ledger_.mutex);
  for (const Attempt& attempt : clusters_.attempts(ledger_)) {
    if (attempt.state != AttemptState::kPlanned) continue;
    if (told_.contains(attempt.id)) {
      handed_over.push_back(attempt.id);  // It could not be written down, because the disk was full, say.
      continue;
    }
    const catalog::Job job = ledger_.catalog.jobs().get(attempt.job);
    if (!job.code.empty() && !ledger_.code.has(job.workspace, job.code)) {
      refuse(attempt.id, kCodeNotFound, kNoCode);
      continue;
    }
    try {
      orders.push_back(order_of(ledger_, surroundings_.options, *driver_, attempt, true));
    } catch (const Error& error) {
      refuse(attempt.id, kUnreadableJob, error.what());
    }
  }
  return orders;
}

void Worker::set_aside_waiting(std::vector<orders::WorkOrder>& orders) {
  if (orders.empty()) return;
  const std::vector<std::string> waits = driver_->waits(orders);
  const MutexLock lock(ledger_.mutex);
  std::size_t next = 0;
  std::erase_if(orders, [&](const orders::WorkOrder& order) GYRE_REQUIRES(ledger_.mutex) {
    const std::string& why = waits[next++];
    const Attempt attempt = ledger_.catalog.attempts().get(order.attempt);
    if (const auto live = ledger_.live.find(attempt.id); live != ledger_.live.end()) live->second.wait = why;
    if (why.empty()) return false;
    catalog::Jobs jobs = ledger_.catalog.jobs();
    if (!jobs.has_event(attempt.job, kWaitsForDriver, attempt.planned)) {
      jobs.remark(attempt.job, {kWaitsForDriver, "it has its nodes, and waits: it " + why});
      acted_ = true;
    }
    return true;
  });
}

void Worker::submit_planned() {
  std::vector<std::string> handed_over;
  std::vector<orders::WorkOrder> orders = planned_orders(handed_over);
  set_aside_waiting(orders);
  for (const orders::WorkOrder& order : orders) {
    told_[order.attempt] = Told::kSubmit;
    try {
      driver_->submit(order);
      handed_over.push_back(order.attempt);
    } catch (const std::exception& error) {
      // A full file system, a file where a folder should be: whatever it is, the attempt has not begun.
      refuse(order.attempt, resources::error_code::kInternal, error.what());
    }
  }
  hear_all();
  const MutexLock lock(ledger_.mutex);
  for (const std::string& attempt : handed_over) {
    ledger_.catalog.attempts().confirm_start(attempt, {"started", "handed to its nodes"});
    acted_ = true;
  }
}

void Worker::refuse(const std::string& attempt, const std::string& code, const std::string& why) {
  unheard_.push_back({drivers::Event::Kind::kEnded, attempt, "", "", refused(code, why)});
}

orders::StopReason Worker::stop_reason_of(const Attempt& attempt) {
  const auto live = ledger_.live.find(attempt.id);
  if (live != ledger_.live.end() && live->second.stop_reason) return *live->second.stop_reason;
  return attempt.end_intent == EndIntent::kRequeue ? orders::StopReason::kPreempted : orders::StopReason::kRequest;
}

void Worker::cancel_ending() {
  struct Ending {
    std::string attempt;
    orders::StopReason reason;
  };
  std::vector<Ending> ending;
  std::vector<std::string> never_started;
  {
    const MutexLock lock(ledger_.mutex);
    for (const Attempt& attempt : clusters_.attempts(ledger_)) {
      if (attempt.state != AttemptState::kEnding) continue;
      const auto told = told_.find(attempt.id);
      if (told == told_.end()) {
        never_started.push_back(attempt.id);
      } else if (told->second != Told::kCancel) {
        ending.push_back({attempt.id, stop_reason_of(attempt)});
      }
    }
  }
  // Their records were ended without their nodes, while the driver was away.
  for (const std::string& attempt : left_running()) ending.push_back({attempt, orders::StopReason::kRequest});
  // Terminated after they were planned and before submit_planned(): no driver would report their ends.
  for (const std::string& attempt : never_started) {
    hub::AttemptResult ended;
    ended.preempted = true;
    finish(attempt, ended);
  }
  for (const Ending& each : ending) {
    driver_->cancel(each.attempt, each.reason, kGrace);
    told_[each.attempt] = Told::kCancel;
  }
}

std::vector<std::string> Worker::left_running() {
  std::vector<std::string> left;
  const MutexLock lock(ledger_.mutex);
  const std::vector<Attempt> unended = clusters_.attempts(ledger_);
  for (const auto& [attempt, told] : told_) {
    if (told != Told::kCancel && std::ranges::find(unended, attempt, &Attempt::id) == unended.end()) {
      left.push_back(attempt);
    }
  }
  return left;
}

/// Those that nobody wants any more, and those that vanished, which are replaced by others under other names.
void Worker::release_nodes() {
  std::vector<catalog::Node> nodes;
  {
    const MutexLock lock(ledger_.mutex);
    for (const catalog::Node& node : ledger_.catalog.nodes().list()) {
      const bool goes = node.state == NodeState::kLeaving || (node.state == NodeState::kLost && !node.attempt);
      if (goes && clusters_.contains(node.cluster)) nodes.push_back(node);
    }
  }
  for (const catalog::Node& node : nodes) {
    driver_->release(node.name);
    const MutexLock lock(ledger_.mutex);
    ledger_.catalog.nodes().remove(node.id, node.state == NodeState::kLost ? catalog::Cause{"nodeLost", node.problem}
                                                                           : catalog::Cause{"released", ""});
    acted_ = true;
  }
}

void Worker::hear_all() {
  for (; !unheard_.empty(); unheard_.pop_front()) {
    try {
      hear(unheard_.front());
      acted_ = true;
    } catch (const Error& error) {
      // An event that cannot be written down, because the disk is full, say, stays the first.
      if (may_pass(error.code())) throw;
      // News of what has been deleted meanwhile, and the like; the others must not wait for it.
      surroundings_.options.logger->warn("news of attempt '{}' and node '{}' was not taken: {}",
                                         unheard_.front().attempt, unheard_.front().node, error.what());
    }
  }
}

void Worker::hear(const drivers::Event& event) {
  using Kind = drivers::Event::Kind;
  if (after_restore_.settle(event, *driver_)) return;
  switch (event.kind) {
    case Kind::kEnded: return finish(event.attempt, *event.result);
    case Kind::kNodeLost: return lose(event.node, event.text);
    case Kind::kRunning:
    case Kind::kNote: {
      const MutexLock lock(ledger_.mutex);
      const Attempt attempt = ledger_.catalog.attempts().get(event.attempt);
      catalog::Jobs jobs = ledger_.catalog.jobs();
      if (event.kind == Kind::kNote) return jobs.remark(attempt.job, {"note", event.text});
      // Nodes tell a server that has started again that their attempt runs, which its events have had already.
      if (jobs.has_event(attempt.job, kPrepared, attempt.planned)) return;
      return jobs.remark(attempt.job, {kPrepared, "all nodes are prepared; the job runs"});
    }
    case Kind::kNodeCame:
    case Kind::kNodeGone: return;
  }
}

void Worker::lose(const std::string& node, const std::string& why) {
  const MutexLock lock(ledger_.mutex);
  const auto found = ledger_.catalog.nodes().find(node);
  if (!found || found->state == NodeState::kLost) return;
  ledger_.catalog.nodes().change(found->id, NodeState::kLost, {"nodeLost", why});
}

void Worker::finish(const std::string& id, const hub::AttemptResult& result) {
  {
    const MutexLock lock(ledger_.mutex);
    const Attempt attempt = ledger_.catalog.attempts().get(id);
    if (attempt.state != AttemptState::kEnded) write_end(ledger_, surroundings_.options, attempt, result);
    ledger_.live.erase(id);
  }
  told_.erase(id);
  driver_->acknowledge(id);
  acted_ = true;
}

}  // namespace gyre::jobs::service
