#include "gyre/jobs/service/internal/dispatcher.h"

#include <fmt/format.h>
#include <poll.h>

#include <spdlog/logger.h>
#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/boot.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

namespace {

using catalog::AttemptState;
using catalog::Cause;
using catalog::EndIntent;
using catalog::Id;
using catalog::NodeState;

/// From a request to end until the job's processes are killed.
constexpr std::chrono::seconds kGrace{10};
/// Wall-clock limits are looked at this often while something runs.
constexpr int kTurnMs = 1'000;
/// Of a job whose processes were ended by SIGTERM.
constexpr int kTerminatedExitCode = 128 + SIGTERM;
/// At the drivers of clusters that could not be used.
constexpr std::chrono::seconds kBetweenLooks{1};
/// After a catalog that cannot be written.
constexpr int kPauseAfterFailureMs = 1'000;

/// Of the catalog's failures: the others come again however often the same thing is tried.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::kResourceExhausted || code == ErrorCode::kIo || code == ErrorCode::kTimeout;
}

agent::AttemptResult refused(const std::string& code, const std::string& why) {
  agent::AttemptResult result;
  result.exit_code = 255;
  result.error = agent::JobError{code, why, {}};
  return result;
}

std::string details_of(const agent::JobError& error) {
  return error.details.empty() ? "" : nlohmann::json(error.details).dump();
}

}  // namespace

Dispatcher::Dispatcher(const ServiceOptions& options, Ledger& ledger, std::function<void()> changed)
    : options_(options), ledger_(ledger), changed_(std::move(changed)), drivers_(options) {
  take_over();
  thread_ = start_thread("the job service", [this] { run(); });
}

Dispatcher::~Dispatcher() {
  stopping_ = true;
  notifier_.notify();
  thread_.join();
}

/// New ones have nothing to find again, but where they could not be made before.
std::vector<drivers::Driver*> Dispatcher::all_drivers() {
  const MutexLock lock(ledger_.mutex);
  for (drivers::Driver* driver : drivers_.take_new()) {
    std::vector<agent::WorkOrder> orders;
    for (const Attempt& attempt : ledger_.catalog.attempts().unended()) {
      const bool is_its =
          orphans_.contains(attempt.id) && !unusable_.contains(cluster_of(attempt)) && &driver_of(attempt) == driver;
      if (!is_its) continue;
      orphans_.erase(attempt.id);
      if (auto order = order_to_continue(attempt)) orders.push_back(std::move(*order));
    }
    driver->reattach(orders);
    release_given_up();
    driver->retain(node_names());
  }
  return drivers_.all();
}

/// Once in a while: a folder may be there again.
void Dispatcher::look_at_unusable() {
  const MutexLock lock(ledger_.mutex);
  if (unusable_.empty() || SteadyClock::now() - looked_at_unusable_ < kBetweenLooks) return;
  looked_at_unusable_ = SteadyClock::now();
  for (const Id id : unusable_.all()) {
    const catalog::Cluster cluster = ledger_.catalog.clusters().get(id);
    try {
      static_cast<void>(drivers_.of(cluster_spec(cluster.spec, cluster.scale)));
      options_.logger->info("cluster '{}' can be used again", cluster.name);
      unusable_.erase(id);
    } catch (const std::exception& error) {
      unusable_.set(id, error.what());
    }
  }
}

/// What a service before this one had handed to its drivers, or was about to.
void Dispatcher::take_over() {
  const MutexLock lock(ledger_.mutex);
  catalog::PageRequest request{.limit = catalog::kLongestPage};
  for (bool more = true; more;) {
    const auto page = ledger_.catalog.clusters().list_all(request);
    for (const catalog::Cluster& cluster : page.items) {
      try {
        static_cast<void>(driver_of(cluster));
      } catch (const std::exception& error) {
        options_.logger->error("cluster '{}' cannot be used: {}", cluster.name, error.what());
        unusable_.set(cluster.id, error.what());
      }
    }
    more = page.next.has_value();
    request.after = page.next.value_or(0);
  }
  std::map<drivers::Driver*, std::vector<agent::WorkOrder>> orders;
  const std::string boot = boot_id();
  for (const Attempt& attempt : ledger_.catalog.attempts().unended()) {
    const bool same_boot = attempt.planned_boot.boot == boot;
    const std::chrono::microseconds age(same_boot ? boot_clock_us() - attempt.planned_boot.time_us : 0);
    started_[attempt.id] = SteadyClock::now() - age;
    if (unusable_.contains(cluster_of(attempt))) {
      orphans_.insert(attempt.id);
    } else if (auto order = order_to_continue(attempt)) {
      orders[&driver_of(attempt)].push_back(std::move(*order));
    }
    // Whether a planned one was handed over is not known; doing it again does not start it twice.
    if (attempt.state != AttemptState::kPlanned) submitted_.insert(attempt.id);
  }
  for (drivers::Driver* driver : drivers_.take_new()) driver->reattach(orders[driver]);
  release_given_up();
  ledger_.code.remove_unused([&](Id workspace, const std::string& code) GYRE_REQUIRES(ledger_.mutex) {
    return ledger_.catalog.jobs().uses_code(workspace, code);
  });
}

std::optional<agent::WorkOrder> Dispatcher::order_to_continue(const Attempt& attempt) {
  try {
    return order_of(attempt);
  } catch (const Error& error) {
    options_.logger->error("attempt {} cannot be continued: {}", attempt.id, error.what());
    agent::AttemptResult result = refused(kUnreadableJob, error.what());
    for (const catalog::AttemptNode& node : attempt.nodes) result.lost.push_back(node.name);
    result.hopeless = true;
    unheard_.push_back({drivers::Event::Kind::kEnded, attempt.id, "", "", std::move(result)});
    given_up_.push_back(attempt);
    return std::nullopt;
  }
}

void Dispatcher::release_given_up() {
  for (const Attempt& attempt : std::exchange(given_up_, {})) {
    for (const catalog::AttemptNode& node : attempt.nodes) driver_of(attempt).release(node.name);
  }
}

std::set<std::string> Dispatcher::node_names() {
  std::set<std::string> names;
  for (const catalog::Node& node : ledger_.catalog.nodes().list()) names.insert(node.name);
  return names;
}

void Dispatcher::finish_releases() {
  if (releases_finished_) return;
  for (const catalog::Node& node : ledger_.catalog.nodes().list()) {
    if (node.state == NodeState::kLeaving) ledger_.catalog.nodes().remove(node.id, {"released", ""});
  }
  const std::set<std::string> names = node_names();
  for (drivers::Driver* driver : drivers_.all()) driver->retain(names);
  releases_finished_ = true;
}

void Dispatcher::run() {
  while (!stopping_) {
    int pause_ms = -1;
    try {
      turn();
      if (!trouble_.empty()) options_.logger->info("the job service goes on");
      trouble_.clear();
      const MutexLock lock(ledger_.mutex);
      if (!started_.empty() || !unusable_.empty()) pause_ms = kTurnMs;
    } catch (const std::exception& error) {
      if (trouble_ != error.what()) {
        options_.logger->error(
            "the job service only answers questions for the moment, starts nothing and refuses changes; it tries again "
            "every second: {}",
            error.what());
      }
      trouble_ = error.what();
      pause_ms = kPauseAfterFailureMs;
    }
    changed_();
    wait(pause_ms);
  }
}

void Dispatcher::wait(int limit_ms) {
  std::vector<pollfd> sources{{notifier_.fd(), POLLIN, 0}};
  for (const drivers::Driver* driver : all_drivers()) sources.push_back({driver->fd(), POLLIN, 0});
  ::poll(sources.data(), sources.size(), limit_ms);
  notifier_.clear();
}

void Dispatcher::turn() {
  look_at_unusable();
  for (drivers::Driver* driver : all_drivers()) {
    for (drivers::Event& event : driver->watch(Deadline::after(std::chrono::milliseconds(0)))) {
      unheard_.push_back(std::move(event));
    }
  }
  hear_all();
  decide();
  submit_planned();
  cancel_ending();
}

void Dispatcher::hear_all() {
  for (; !unheard_.empty(); unheard_.pop_front()) {
    try {
      hear(unheard_.front());
    } catch (const Error& error) {
      // An event that cannot be written down, because the disk is full, say, stays the first.
      if (may_pass(error.code())) throw;
      // News of what has been deleted meanwhile, and the like; the others must not wait for it.
      options_.logger->warn("news of attempt '{}' and node '{}' was not taken: {}", unheard_.front().attempt,
                            unheard_.front().node, error.what());
    }
  }
}

// ---- what the catalog wants

void Dispatcher::decide() {
  const MutexLock lock(ledger_.mutex);
  finish_releases();
  remove_deleted();
  // A decision may make room for others; asked again the scheduler has nothing to add.
  for (auto decisions = scheduler::decide(state()); !decisions.empty(); decisions = scheduler::decide(state())) {
    for (const scheduler::Decision& decision : decisions) act(decision);
  }
  settle_clusters();
}

void Dispatcher::act(const scheduler::Decision& decision) {
  const Cause cause{std::string(scheduler::reason_name(decision.reason)), decision.why};
  if (const auto* action = std::get_if<scheduler::StartJob>(&decision.action)) {
    start(*action, cause);
  } else if (const auto* requeue = std::get_if<scheduler::RequeueJob>(&decision.action)) {
    end(requeue->job, requeue->attempt, EndIntent::kRequeue, agent::StopReason::kPreempted, cause);
  } else if (const auto* terminate = std::get_if<scheduler::TerminateJob>(&decision.action)) {
    const auto reason = decision.reason == scheduler::Reason::kWallClockLimit ? agent::StopReason::kWallClock
                                                                              : agent::StopReason::kRequest;
    end(terminate->job, terminate->attempt, EndIntent::kTerminate, reason, cause);
  } else if (const auto* allocated = std::get_if<scheduler::AllocateNodes>(&decision.action)) {
    allocate(*allocated, cause);
  } else {
    release(ledger_.catalog.nodes().get(std::get<scheduler::ReleaseNode>(decision.action).node), cause);
  }
}

void Dispatcher::start(const scheduler::StartJob& action, const Cause& cause) {
  const Attempt attempt = ledger_.catalog.attempts().plan(action.job, action.attempt, action.nodes, cause);
  started_[attempt.id] = SteadyClock::now();
}

void Dispatcher::end(Id job, int attempt, EndIntent intent, agent::StopReason reason, const Cause& cause) {
  for (const Attempt& each : ledger_.catalog.attempts().list(job)) {
    if (each.number != attempt) continue;
    ledger_.catalog.attempts().plan_end(each.id, intent, cause);
    reasons_[each.id] = reason;
  }
}

/// Nodes need nothing: virtual ones are there as soon as they are wanted, an engine's come with the attempt.
void Dispatcher::allocate(const scheduler::AllocateNodes& action, const Cause& cause) {
  ledger_.catalog.together([&]() GYRE_REQUIRES(ledger_.mutex) {
    for (int i = 0; i < action.count; ++i) {
      const std::string name = fmt::format("node-{}-{}", action.cluster, ledger_.catalog.events().latest() + 1);
      const catalog::Node node = ledger_.catalog.nodes().plan(action.cluster, name, cause);
      ledger_.catalog.nodes().change(node.id, NodeState::kPreparing, cause);
      ledger_.catalog.nodes().change(node.id, NodeState::kIdle, cause);
    }
  });
}

void Dispatcher::release(const catalog::Node& node, const Cause& cause) {
  ledger_.catalog.nodes().change(node.id, NodeState::kLeaving, cause);
  if (!unusable_.contains(node.cluster)) {
    driver_of(ledger_.catalog.clusters().get(node.cluster)).release(node.name);
  }
  ledger_.catalog.nodes().remove(node.id, cause);
}

void Dispatcher::settle_clusters() {
  std::map<Id, int> counts;
  for (const catalog::Node& node : ledger_.catalog.nodes().list()) {
    // What vanished is replaced by another node, under another name.
    if (node.state == NodeState::kLost && !node.attempt) {
      ledger_.catalog.nodes().remove(node.id, {"nodeLost", node.problem});
    } else {
      ++counts[node.cluster];
    }
  }
  catalog::PageRequest request{.limit = catalog::kLongestPage};
  for (bool more = true; more;) {
    const auto page = ledger_.catalog.clusters().list_all(request);
    for (const catalog::Cluster& cluster : page.items) {
      const auto stored = stored_spec(cluster);
      if (!stored.spec) continue;
      const api::Scale scale = stored.spec->scale_settings;
      const auto* manual = std::get_if<spec::ManualScale>(&scale);
      const bool steady = !manual || counts[cluster.id] == manual->target_node_count;
      ledger_.catalog.clusters().change(
          cluster.id, steady ? catalog::AllocationState::kSteady : catalog::AllocationState::kResizing, {});
    }
    more = page.next.has_value();
    request.after = page.next.value_or(0);
  }
}

void Dispatcher::remove_deleted() {
  for (const catalog::Job& job : ledger_.catalog.jobs().deleting()) {
    if (catalog::is_finished(job.execution_state)) ledger_.remove_job(job);
  }
  for (const catalog::Cluster& cluster : ledger_.catalog.clusters().deleting()) {
    for (const catalog::Node& node : ledger_.catalog.nodes().list(cluster.id)) {
      if (!node.attempt && node.state != NodeState::kLost) release(node, {"clusterDeleted", ""});
    }
    if (!ledger_.catalog.nodes().list(cluster.id).empty()) continue;
    ledger_.catalog.clusters().remove(cluster.id);
    unusable_.erase(cluster.id);
  }
}

// ---- what the driver does

void Dispatcher::submit_planned() {
  std::vector<std::pair<agent::WorkOrder, drivers::Driver*>> orders;
  std::vector<std::string> handed_over;
  {
    const MutexLock lock(ledger_.mutex);
    for (const Attempt& attempt : ledger_.catalog.attempts().unended()) {
      if (attempt.state != AttemptState::kPlanned || unusable_.contains(cluster_of(attempt))) continue;
      if (submitted_.contains(attempt.id)) {
        handed_over.push_back(attempt.id);  // It could not be written down, because the disk was full, say.
        continue;
      }
      try {
        orders.emplace_back(order_of(attempt), &driver_of(attempt));
      } catch (const Error& error) {
        refuse(attempt.id, kUnreadableJob, error.what());
      }
    }
  }
  for (const auto& [order, driver] : orders) {
    submitted_.insert(order.attempt);
    try {
      driver->submit(order);
      handed_over.push_back(order.attempt);
    } catch (const std::exception& error) {
      // A full file system, a file where a folder should be: whatever it is, the attempt has not begun.
      refuse(order.attempt, agent::error_code::kInternal, error.what());
    }
  }
  hear_all();
  const MutexLock lock(ledger_.mutex);
  for (const std::string& attempt : handed_over) {
    ledger_.catalog.attempts().confirm_start(attempt, {"started", "handed to its nodes"});
  }
}

void Dispatcher::refuse(const std::string& attempt, const std::string& code, const std::string& why) {
  unheard_.push_back({drivers::Event::Kind::kEnded, attempt, "", "", refused(code, why)});
}

void Dispatcher::cancel_ending() {
  struct Ending {
    std::string attempt;
    agent::StopReason reason;
    drivers::Driver* driver;
  };
  std::vector<Ending> ending;
  std::vector<std::string> never_started;
  {
    const MutexLock lock(ledger_.mutex);
    for (const Attempt& attempt : ledger_.catalog.attempts().unended()) {
      if (attempt.state != AttemptState::kEnding || cancelled_.contains(attempt.id)) continue;
      if (unusable_.contains(cluster_of(attempt))) continue;
      if (!submitted_.contains(attempt.id)) {
        never_started.push_back(attempt.id);
        continue;
      }
      const auto known = reasons_.find(attempt.id);
      const auto otherwise =
          attempt.end_intent == EndIntent::kRequeue ? agent::StopReason::kPreempted : agent::StopReason::kRequest;
      ending.push_back({attempt.id, known == reasons_.end() ? otherwise : known->second, &driver_of(attempt)});
    }
  }
  // Terminated after they were planned and before submit_planned(): no driver would report their ends.
  for (const std::string& attempt : never_started) {
    agent::AttemptResult ended;
    ended.preempted = true;
    finish(attempt, ended);
  }
  for (const Ending& each : ending) {
    each.driver->cancel(each.attempt, each.reason, kGrace);
    cancelled_.insert(each.attempt);
  }
}

void Dispatcher::hear(const drivers::Event& event) {
  using Kind = drivers::Event::Kind;
  switch (event.kind) {
    case Kind::kEnded: return finish(event.attempt, *event.result);
    case Kind::kNodeLost: return lose(event.node, event.text);
    case Kind::kRunning:
    case Kind::kNote: {
      const MutexLock lock(ledger_.mutex);
      const Id job = ledger_.catalog.attempts().get(event.attempt).job;
      const bool runs = event.kind == Kind::kRunning;
      return ledger_.catalog.jobs().remark(
          job, runs ? Cause{"prepared", "all nodes are prepared; the job runs"} : Cause{"note", event.text});
    }
    case Kind::kAgentCame:
    case Kind::kAgentGone: return;
  }
}

void Dispatcher::lose(const std::string& node, const std::string& why) {
  const MutexLock lock(ledger_.mutex);
  const auto found = ledger_.catalog.nodes().find(node);
  if (!found || found->state == NodeState::kLost) return;
  ledger_.catalog.nodes().change(found->id, NodeState::kLost, {"nodeLost", why});
}

void Dispatcher::finish(const std::string& id, const agent::AttemptResult& result) {
  drivers::Driver* driver = nullptr;
  {
    const MutexLock lock(ledger_.mutex);
    const Attempt attempt = ledger_.catalog.attempts().get(id);
    driver = &driver_of(attempt);
    if (attempt.state != AttemptState::kEnded) {
      ledger_.catalog.together([&]() GYRE_REQUIRES(ledger_.mutex) { record_end(attempt, result); });
    }
    started_.erase(id);
    reasons_.erase(id);
  }
  cancelled_.erase(id);
  submitted_.erase(id);
  driver->acknowledge(id);
}

void Dispatcher::record_end(const Attempt& attempt, const agent::AttemptResult& result) {
  for (const std::string& name : result.lost) {
    const auto node = ledger_.catalog.nodes().find(name);
    if (node && node->state == NodeState::kRunning) {
      ledger_.catalog.nodes().change(node->id, NodeState::kLost, {"nodeLost", "lost during attempt " + attempt.id});
    }
  }
  catalog::AttemptEnd end;
  const bool terminated = attempt.end_intent == EndIntent::kTerminate;
  const bool lost = !result.lost.empty() && !result.hopeless;
  const bool again = result.preempted || (lost && attempt.number < kMostAttempts);
  if (!terminated && again) {
    end.outcome = catalog::AttemptEnd::Outcome::kRequeued;
    end.cause = result.preempted ? Cause{"preempted", "its nodes were wanted otherwise"}
                                 : Cause{"nodeLost", result.error ? result.error->message : ""};
  } else if (result.error) {
    end.outcome = catalog::AttemptEnd::Outcome::kFailed;
    end.exit_code = result.exit_code;
    end.error = catalog::JobError{result.error->code, result.error->message, details_of(*result.error)};
    end.cause = {end.error->code, end.error->message};
  } else if (result.preempted) {
    // Terminated by somebody while it was ended to be queued again.
    end.outcome = catalog::AttemptEnd::Outcome::kFailed;
    end.exit_code = kTerminatedExitCode;
    end.error = catalog::JobError{agent::error_code::kJobFailed, "the job was terminated", R"({"reason":"request"})"};
    end.cause = {end.error->code, end.error->message};
  } else {
    end.exit_code = 0;
    end.cause = {"succeeded", ""};
  }
  ledger_.catalog.attempts().confirm_end(attempt.id, end);
  // The agents have cleaned their nodes before they report the end.
  for (const catalog::AttemptNode& each : attempt.nodes) {
    const auto node = ledger_.catalog.nodes().find(each.name);
    if (node && node->state == NodeState::kPreparing) {
      ledger_.catalog.nodes().change(node->id, NodeState::kIdle, {"clean", "clean after attempt " + attempt.id});
    }
  }
}

}  // namespace gyre::jobs::service
