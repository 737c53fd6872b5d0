#include "gyre/jobs/service/internal/dispatcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gyre/base/boot.h"
#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/internal/restore.h"

namespace gyre::jobs::service {

namespace {

using catalog::Cause;
using catalog::Id;
using resources::EndIntent;
using resources::NodeState;

/// Wall-clock limits are looked at this often while something runs; so are clusters whose drivers have problems.
constexpr int kTurnMs = 1'000;
/// After a catalog that cannot be written.
constexpr int kPauseAfterFailureMs = 1'000;
/// For drivers, at the start of the service.
constexpr std::chrono::seconds kLongestTakeOver{2};
constexpr int kLookMs = 5;
/// Jobs that have been kept for long enough.
constexpr int kForgottenAtOnce = 100;
constexpr std::chrono::milliseconds kBetweenParts{200};
constexpr std::chrono::milliseconds kBetweenForgettings{std::chrono::minutes(10)};

/// Whether the same may go better later: the disk is full, say.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::kResourceExhausted || code == ErrorCode::kIo || code == ErrorCode::kTimeout;
}

}  // namespace

Dispatcher::Dispatcher(const ServiceOptions& options, Ledger& ledger, std::function<void()> changed)
    : options_(options),
      ledger_(ledger),
      changed_(std::move(changed)),
      drivers_(options),
      view_([this](Id cluster) { return problem_of(cluster).has_value(); }),
      trouble_(options.logger) {
  restore();
  take_over();
  thread_ = start_thread("the job service", [this] { run(); });
}

Dispatcher::~Dispatcher() {
  stopping_ = true;
  notifier_.notify();
  thread_.join();
  std::map<Drivers::Key, std::unique_ptr<Worker>> workers;
  {
    const MutexLock lock(mutex_);
    workers.swap(workers_);
    worker_of_.clear();
  }
  workers.clear();  // Without the lock: some look for problems of theirs.
}

void Dispatcher::wake() {
  asked_ = true;
  notifier_.notify();
}

void Dispatcher::wake_workers() {
  const MutexLock lock(mutex_);
  for (const auto& [key, worker] : workers_) worker->wake();
}

std::optional<std::string> Dispatcher::problem_of(Id cluster) const {
  const MutexLock lock(mutex_);
  if (const auto found = worker_of_.find(cluster); found != worker_of_.end()) return found->second->problem();
  const auto found = unreadable_.find(cluster);
  return found == unreadable_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> Dispatcher::node_problems(const spec::ClusterSpec& cluster) {
  const drivers::Driver* driver = drivers_.find(Drivers::key_of(cluster));
  return driver == nullptr ? std::vector<std::string>() : driver->node_problems();
}

void Dispatcher::check_job(const spec::JobSpec& job, const spec::ClusterSpec& cluster) {
  const drivers::Driver* driver = drivers_.find(Drivers::key_of(cluster));
  if (driver == nullptr) return;
  if (job.node_count > driver->most_nodes()) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("it asks for {} nodes, of which the cluster can have at most {}", job.node_count,
                            driver->most_nodes()));
  }
  driver->check_job(job, cluster);
}

std::optional<std::string> Dispatcher::image_digest(const spec::JobSpec& job, const spec::ClusterSpec& cluster) {
  const drivers::Driver* driver = drivers_.find(Drivers::key_of(cluster));
  return driver == nullptr ? std::nullopt : driver->image_digest(job, cluster);
}

std::optional<int> Dispatcher::gpus_per_node(const spec::ClusterSpec& cluster) {
  const drivers::Driver* driver = drivers_.find(Drivers::key_of(cluster));
  return driver == nullptr ? std::nullopt : driver->gpus_per_node(cluster);
}

std::string Dispatcher::address_of(const spec::ClusterSpec& cluster, const std::string& node, Id id) {
  const drivers::Driver* driver = drivers_.find(Drivers::key_of(cluster));
  return driver == nullptr ? "" : driver->place(node, id).address;  // What is wrong stands with the cluster.
}

void Dispatcher::assign_clusters() {
  std::vector<Worker*> made;
  ledger_.for_each_cluster([&](const catalog::Cluster& cluster) GYRE_REQUIRES(ledger_.mutex) {
    const MutexLock lock(mutex_);
    if (worker_of_.contains(cluster.id) || unreadable_.contains(cluster.id)) return;
    const auto stored = stored_spec(cluster);
    if (!stored.spec) {
      options_.logger->error("cluster '{}' cannot be used: {}", cluster.name, stored.problem);
      unreadable_[cluster.id] = stored.problem;
      return;
    }
    const Drivers::Key key = Drivers::key_of(*stored.spec);
    auto& worker = workers_[key];
    if (!worker) {
      worker = std::make_unique<Worker>(Worker::Surroundings{options_, ledger_, drivers_,
                                                             [this] {
                                                               wake();
                                                               changed_();
                                                             }},
                                        key, ledger_.restored.has_value());
      made.push_back(worker.get());
    }
    worker->add(cluster.id);
    worker_of_[cluster.id] = worker.get();
  });
  for (Worker* worker : made) worker->start();
}

void Dispatcher::restore() {
  const MutexLock lock(ledger_.mutex);
  ledger_.restored = ledger_.catalog.restored();
  try {
    enter_what_is_new();
  } catch (const Error& error) {
    if (!may_pass(error.code())) throw;
    trouble_.meet(error.what());  // A disk that is full, say; turn() tries again.
  }
  const resources::TimeUs now = options_.wall_clock();
  ledger_.catalog.jobs().for_each_unfinished([&](const catalog::Job& job) GYRE_REQUIRES(ledger_.mutex) {
    if (!job.retry) return;
    const std::chrono::microseconds left(*job.retry - now);
    // The wall clock may have been set meanwhile.
    if (left.count() > 0)
      ledger_.retries[job.id] =
          SteadyClock::now() + std::min<std::chrono::microseconds>(left, options_.longest_retry_pause);
  });
}

void Dispatcher::enter_what_is_new() {
  if (entered_) return;
  if (ledger_.restored) {
    take_back(ledger_, options_);  // Until end_restore() the lease is the one that the nodes may still have.
  } else {
    ledger_.catalog.note_lease(options_.lease.count());
  }
  entered_ = ledger_.taken_back = true;
}

void Dispatcher::end_restore() {
  if (!ledger_.restored) return;
  {
    const MutexLock lock(mutex_);
    if (!std::ranges::all_of(workers_, [](const auto& each) { return each.second->has_taken_over(); })) return;
  }
  ledger_.catalog.end_restore();
  ledger_.catalog.note_lease(options_.lease.count());
  ledger_.restored.reset();
  options_.logger->info("what nodes still run is known; the restored server goes on");
}

/// What a service before this one had handed to its drivers, or was about to.
void Dispatcher::take_over() {
  {
    const MutexLock lock(ledger_.mutex);
    const std::string boot = boot_id();
    for (const Attempt& attempt : ledger_.catalog.attempts().unended()) {
      const bool same_boot = attempt.planned_boot.boot == boot;
      const std::chrono::microseconds age(same_boot ? boot_clock_us() - attempt.planned_boot.time_us : 0);
      ledger_.live[attempt.id] = {.job = attempt.job, .started = SteadyClock::now() - age, .inherited = true};
    }
    assign_clusters();
  }
  const auto all_have_begun = [&] {
    const MutexLock lock(mutex_);
    return std::ranges::all_of(workers_, [](const auto& worker) { return worker.second->has_begun(); });
  };
  for (const Deadline deadline = Deadline::after(kLongestTakeOver); !all_have_begun() && !deadline.passed();) {
    ::poll(nullptr, 0, kLookMs);
  }
}

void Dispatcher::run() {
  while (!stopping_) {
    int pause_ms = -1;
    acted_ = asked_.exchange(false);
    try {
      turn();
      trouble_.pass();
      const MutexLock lock(ledger_.mutex);
      const auto until = std::chrono::ceil<std::chrono::milliseconds>(next_forgetting_ - SteadyClock::now());
      pause_ms = static_cast<int>(std::max<std::int64_t>(until.count(), 0));
      if (!ledger_.live.empty()) pause_ms = std::min(pause_ms, kTurnMs);
      for (const auto& [job, when] : ledger_.retries) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - SteadyClock::now());
        pause_ms = std::min(pause_ms, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      }
    } catch (const std::exception& error) {
      trouble_.meet(error.what());
      pause_ms = kPauseAfterFailureMs;
    }
    if (acted_) wake_workers();
    changed_();
    wait(pause_ms);
  }
}

void Dispatcher::wait(int limit_ms) {
  pollfd source{.fd = notifier_.fd(), .events = POLLIN, .revents = 0};
  ::poll(&source, 1, limit_ms);
  notifier_.clear();
}

void Dispatcher::turn() {
  {
    const MutexLock lock(ledger_.mutex);
    enter_what_is_new();
    assign_clusters();
    end_restore();
  }
  decide();
  ledger_.free_removed_logs();
}

bool Dispatcher::attempt_alone(const std::string& what, const std::function<void()>& change) {
  try {
    change();
    acted_ = true;
    return true;
  } catch (const Error& error) {
    if (may_pass(error.code())) throw;
    options_.logger->error("{} failed, and is tried again: {}", what, error.what());
    return false;
  }
}

// ---- what the catalog wants

void Dispatcher::decide() {
  const MutexLock lock(ledger_.mutex);
  remove_lost_nodes();  // Before what is deleted: a cluster goes with its last node, and nothing else may happen later.
  remove_deleted();
  // A decision may make room for others; asked again the scheduler has nothing to add. What cannot be carried out comes
  // again in the next turn.
  bool all_done = true;
  const auto next_decisions = [&]() GYRE_REQUIRES(ledger_.mutex) {
    const scheduler::State now = view_.state(ledger_);
    return scheduler::decide(now, view_.waiting());
  };
  for (auto decisions = next_decisions(); all_done && !decisions.empty(); decisions = next_decisions()) {
    for (const scheduler::Decision& decision : decisions) {
      const std::string what = fmt::format("a decision ({})", decision.why);
      all_done &= attempt_alone(what, [&]() GYRE_REQUIRES(ledger_.mutex) { act(decision); });
    }
  }
  settle_clusters();
  forget_old();
}

void Dispatcher::act(const scheduler::Decision& decision) {
  const Cause cause{std::string(scheduler::reason_name(decision.reason)), decision.why};
  if (const auto* action = std::get_if<scheduler::StartJob>(&decision.action)) {
    start(*action, cause);
  } else if (const auto* requeue = std::get_if<scheduler::RequeueJob>(&decision.action)) {
    end(requeue->job, requeue->attempt, EndIntent::kRequeue, orders::StopReason::kPreempted, cause);
  } else if (const auto* terminate = std::get_if<scheduler::TerminateJob>(&decision.action)) {
    const auto reason = decision.reason == scheduler::Reason::kWallClockLimit ? orders::StopReason::kWallClock
                                                                              : orders::StopReason::kRequest;
    end(terminate->job, terminate->attempt, EndIntent::kTerminate, reason, cause);
  } else if (const auto* allocated = std::get_if<scheduler::AllocateNodes>(&decision.action)) {
    allocate(*allocated, cause);
  } else {
    release(ledger_.catalog.nodes().get(std::get<scheduler::ReleaseNode>(decision.action).node), cause);
  }
}

void Dispatcher::start(const scheduler::StartJob& action, const Cause& cause) {
  const Attempt attempt = ledger_.catalog.attempts().plan(action.job, action.attempt, action.nodes, cause);
  ledger_.live[attempt.id] = {.job = action.job, .started = SteadyClock::now()};
}

void Dispatcher::end(Id job, int attempt, EndIntent intent, orders::StopReason reason, const Cause& cause) {
  for (const Attempt& each : ledger_.catalog.attempts().list(job)) {
    if (each.number != attempt) continue;
    ledger_.catalog.attempts().plan_end(each.id, intent, cause);
    if (const auto live = ledger_.live.find(each.id); live != ledger_.live.end()) live->second.stop_reason = reason;
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

/// Its worker releases it, and then its record goes; where there is none to be had, what is left of it goes when there
/// is one again.
void Dispatcher::release(const catalog::Node& node, const Cause& cause) {
  ledger_.catalog.nodes().change(node.id, NodeState::kLeaving, cause);
  if (problem_of(node.cluster)) ledger_.catalog.nodes().remove(node.id, cause);
}

void Dispatcher::forget_old() {
  if (SteadyClock::now() < next_forgetting_) return;
  const auto before = [&](std::chrono::hours kept) {
    return kept.count() == 0 ? std::numeric_limits<resources::TimeUs>::min()
                             : options_.wall_clock() - std::chrono::microseconds(kept).count();
  };
  const std::vector<catalog::Job> old =
      ledger_.catalog.jobs().ended_before(before(options_.keep_jobs), kForgottenAtOnce);
  for (const catalog::Job& job : old) {
    attempt_alone(fmt::format("the removal of job '{}'", job.name), [&]() GYRE_REQUIRES(ledger_.mutex) {
      ledger_.catalog.jobs().start_deletion(job.id, {"retention", "it ended long ago"});
      ledger_.remove_job(job);
    });
  }
  const int events = ledger_.catalog.events().forget_before(before(options_.keep_events));
  ledger_.code.remove_unused([&](Id workspace, const std::string& code) GYRE_REQUIRES(ledger_.mutex) {
    return ledger_.catalog.jobs().needs_code(workspace, code, before(options_.keep_code));
  });
  const bool more = events > 0 || static_cast<int>(old.size()) == kForgottenAtOnce;
  next_forgetting_ = SteadyClock::now() + (more ? kBetweenParts : kBetweenForgettings);
}

bool Dispatcher::is_gone(const catalog::Node& node) { return node.state == NodeState::kLost && !node.attempt; }

/// Their worker does it otherwise.
void Dispatcher::remove_lost_nodes() {
  for (const catalog::Node& node : ledger_.catalog.nodes().list()) {
    if (is_gone(node) && problem_of(node.cluster)) {
      ledger_.catalog.nodes().remove(node.id, {"nodeLost", node.problem});
    }
  }
}

void Dispatcher::settle_clusters() {
  std::map<Id, int> counts;
  for (const catalog::Node& node : ledger_.catalog.nodes().list()) {
    if (!is_gone(node)) ++counts[node.cluster];
  }
  ledger_.for_each_cluster([&](const catalog::Cluster& cluster) GYRE_REQUIRES(ledger_.mutex) {
    const auto stored = stored_spec(cluster);
    if (!stored.spec) return;
    const resources::Scale scale = stored.spec->scale_settings;
    const auto* manual = std::get_if<spec::ManualScale>(&scale);
    const bool steady = !manual || counts[cluster.id] == manual->target_node_count;
    ledger_.catalog.clusters().change(
        cluster.id, steady ? resources::AllocationState::kSteady : resources::AllocationState::kResizing, {});
  });
}

void Dispatcher::remove_deleted() {
  for (const catalog::Job& job : ledger_.catalog.jobs().deleting()) {
    if (!resources::is_finished(job.execution_state)) continue;
    attempt_alone(fmt::format("the deletion of job '{}'", job.name),
                  [&]() GYRE_REQUIRES(ledger_.mutex) { ledger_.remove_job(job); });
  }
  for (const catalog::Cluster& cluster : ledger_.catalog.clusters().deleting()) {
    attempt_alone(fmt::format("the deletion of cluster '{}'", cluster.name), [&]() GYRE_REQUIRES(ledger_.mutex) {
      for (const catalog::Node& node : ledger_.catalog.nodes().list(cluster.id)) {
        const bool goes_already = node.state == NodeState::kLost || node.state == NodeState::kLeaving;
        if (!node.attempt && !goes_already) release(node, {"clusterDeleted", ""});
      }
      if (ledger_.catalog.nodes().list(cluster.id).empty()) ledger_.catalog.clusters().remove(cluster.id);
    });
  }
}

}  // namespace gyre::jobs::service
