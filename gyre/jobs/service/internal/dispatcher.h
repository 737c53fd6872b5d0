#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/scheduler/decide.h"
#include "gyre/jobs/service/internal/drivers.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/internal/queue.h"
#include "gyre/jobs/service/internal/unusable_clusters.h"
#include "gyre/jobs/service/service.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::service {

/// Of a workspace's running jobs, by the priority of their nodes.
struct CoresInUse {
  std::int64_t dedicated = 0;
  std::int64_t low_priority = 0;
};

/// The one thread of the service that acts: it asks the scheduler, writes down what it is about to do, hands it to the
/// driver, and writes down what the driver reports.
class Dispatcher {
 public:
  /// `changed` is called after each turn that may have made events, without any lock.
  Dispatcher(const ServiceOptions& options, Ledger& ledger, std::function<void()> changed);
  /// Leaves jobs and agents as they are.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// The catalog has something new to act on. Thread-safe.
  void wake() { notifier_.notify(); }

  /// How many nodes such a cluster can have. Error(kUnsupported | kInvalidArgument | kIo) when nobody provides them.
  int most_nodes(const spec::ClusterSpec& cluster) GYRE_EXCLUDES(ledger_.mutex);
  /// Error(kInvalidArgument) as drivers::Driver::check(), which may wait for a disk: no lock is held meanwhile.
  void check(const spec::ClusterSpec& cluster) GYRE_EXCLUDES(ledger_.mutex);
  /// Where a node of the cluster is; empty where only attempts have addresses.
  std::string address_of(const spec::ClusterSpec& cluster, const std::string& node, catalog::Id id)
      GYRE_EXCLUDES(ledger_.mutex);
  /// Why nobody provides the cluster's nodes at present; nothing where somebody does.
  std::optional<std::string> problem_of(catalog::Id cluster) const { return unusable_.problem_of(cluster); }
  /// Why a waiting job waits; nothing when it does not wait.
  std::optional<api::Explanation> explain(catalog::Id job) GYRE_EXCLUDES(ledger_.mutex);
  CoresInUse cores_in_use(const std::string& workspace) GYRE_EXCLUDES(ledger_.mutex);
  /// Where logs ("stdouterr") and outputs of the job's latest attempt lie on this machine; empty without an attempt.
  std::vector<api::OutputDirectory> output_directories(const catalog::Job& job) GYRE_EXCLUDES(ledger_.mutex);

 private:
  using Attempt = catalog::Attempt;

  void run();
  void take_over();
  /// What a service before this one has released, or was about to, goes. Once.
  void finish_releases() GYRE_REQUIRES(ledger_.mutex);
  std::set<std::string> node_names() GYRE_REQUIRES(ledger_.mutex);
  void turn();
  void hear_all();
  void wait(int limit_ms);
  std::vector<drivers::Driver*> all_drivers() GYRE_EXCLUDES(ledger_.mutex);
  void look_at_unusable();
  agent::WorkOrder order_of(const Attempt& attempt) GYRE_REQUIRES(ledger_.mutex);
  /// For an attempt that was begun by a service before this one. Where its job cannot be read the attempt is given up,
  /// and there is no order.
  std::optional<agent::WorkOrder> order_to_continue(const Attempt& attempt) GYRE_REQUIRES(ledger_.mutex);
  /// What still runs of attempts that were given up ends with their nodes.
  void release_given_up() GYRE_REQUIRES(ledger_.mutex);
  /// Error where nobody provides its nodes at present.
  drivers::Driver& driver_of(const catalog::Cluster& cluster) GYRE_REQUIRES(ledger_.mutex);
  catalog::Id cluster_of(const Attempt& attempt) GYRE_REQUIRES(ledger_.mutex);
  drivers::Driver& driver_of(const Attempt& attempt) GYRE_REQUIRES(ledger_.mutex);

  // What the catalog wants.
  scheduler::State state() GYRE_REQUIRES(ledger_.mutex);
  void add_quotas(scheduler::State& state) GYRE_REQUIRES(ledger_.mutex);
  void add_nodes(scheduler::State& state) GYRE_REQUIRES(ledger_.mutex);
  api::Scale scale_of(const catalog::Cluster& cluster, const spec::ClusterSpec& spec) GYRE_REQUIRES(ledger_.mutex);
  void add_clusters(scheduler::State& state) GYRE_REQUIRES(ledger_.mutex);
  void decide();
  void act(const scheduler::Decision& decision) GYRE_REQUIRES(ledger_.mutex);
  void start(const scheduler::StartJob& action, const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void end(catalog::Id job, int attempt, catalog::EndIntent intent, agent::StopReason reason,
           const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void allocate(const scheduler::AllocateNodes& action, const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void release(const catalog::Node& node, const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void settle_clusters() GYRE_REQUIRES(ledger_.mutex);
  void remove_deleted() GYRE_REQUIRES(ledger_.mutex);

  // What the driver does.
  void submit_planned();
  /// It has not begun, and ends so.
  void refuse(const std::string& attempt, const std::string& code, const std::string& why);
  void cancel_ending();
  void hear(const drivers::Event& event);
  void finish(const std::string& attempt, const agent::AttemptResult& result);
  void record_end(const Attempt& attempt, const agent::AttemptResult& result) GYRE_REQUIRES(ledger_.mutex);
  void lose(const std::string& node, const std::string& why);

  agent::WorkOrder order_of(const Attempt& attempt, const catalog::Job& job, bool with_secrets)
      GYRE_REQUIRES(ledger_.mutex);

  const ServiceOptions& options_;
  Ledger& ledger_;
  std::function<void()> changed_;
  Drivers drivers_ GYRE_GUARDED_BY(ledger_.mutex);
  net::Notifier notifier_;
  Queue queue_ GYRE_GUARDED_BY(ledger_.mutex);
  /// When attempts started, by the steady clock; after a restart of the machine, when the service came back.
  std::map<std::string, SteadyClock::time_point> started_ GYRE_GUARDED_BY(ledger_.mutex);
  std::map<std::string, agent::StopReason> reasons_ GYRE_GUARDED_BY(ledger_.mutex);  // Of ending attempts.
  UnusableClusters unusable_;  // Their jobs wait, and their attempts, `orphans_`, are left as they are.
  std::set<std::string> orphans_ GYRE_GUARDED_BY(ledger_.mutex);
  std::vector<Attempt> given_up_ GYRE_GUARDED_BY(ledger_.mutex);  // Whose nodes are still theirs.
  SteadyClock::time_point looked_at_unusable_{};
  bool releases_finished_ GYRE_GUARDED_BY(ledger_.mutex) = false;
  std::deque<drivers::Event> unheard_;  // The thread's own, as what follows.
  std::set<std::string> submitted_;     // To the driver.
  std::set<std::string> cancelled_;
  std::string trouble_;  // What keeps the service from going on; empty while nothing does.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gyre::jobs::service
