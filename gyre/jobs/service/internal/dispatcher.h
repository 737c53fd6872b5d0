#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/scheduler/decide.h"
#include "gyre/jobs/service/internal/drivers.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/internal/scheduler_view.h"
#include "gyre/jobs/service/internal/trouble.h"
#include "gyre/jobs/service/internal/worker.h"
#include "gyre/jobs/service/service.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::service {

/// Of a workspace's running jobs, by the priority of their nodes.
struct CoresInUse {
  std::int64_t dedicated = 0;
  std::int64_t low_priority = 0;
};

/// Decides what is to be done: one thread asks the scheduler and writes down what it wants, in the catalog alone.
/// Workers, one for each driver, do it.
class Dispatcher {
 public:
  /// `changed` is called after each turn that may have made events, without any lock. Waits for a moment until all
  /// drivers have taken over what a service before this one has left; one that hangs is not waited for.
  Dispatcher(const ServiceOptions& options, Ledger& ledger, std::function<void()> changed);
  /// Leaves jobs and node programs as they are.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// The catalog has something new to act on. Thread-safe.
  void wake();

  /// How many nodes such a cluster can have. Error(kUnsupported | kInvalidArgument | kIo) when nobody provides them.
  int most_nodes(const spec::ClusterSpec& cluster) { return drivers_.of(Drivers::key_of(cluster)).most_nodes(); }
  /// Has `look` judge the driver of a cluster that is to be made; none stays of one that `look` refuses by throwing.
  /// May wait for a disk: no lock is held meanwhile.
  void try_out(const spec::ClusterSpec& cluster, const std::function<void(const drivers::Driver&)>& look)
      GYRE_EXCLUDES(ledger_.mutex) {
    drivers_.try_out(Drivers::key_of(cluster), look);
  }
  /// As drivers::Driver::node_problems(). Waits for nothing.
  std::vector<std::string> node_problems(const spec::ClusterSpec& cluster);
  /// Error(kInvalidArgument) as drivers::Driver::check_job(). Waits for nothing: a driver that is not made yet is not
  /// asked.
  void check_job(const spec::JobSpec& job, const spec::ClusterSpec& cluster);
  /// As drivers::Driver::image_digest(), which asks a registry: no lock is held meanwhile. Nothing also where there is
  /// no driver yet.
  std::optional<std::string> image_digest(const spec::JobSpec& job, const spec::ClusterSpec& cluster)
      GYRE_EXCLUDES(ledger_.mutex);
  /// As drivers::Driver::gpus_per_node(); nothing also where there is no driver yet.
  std::optional<int> gpus_per_node(const spec::ClusterSpec& cluster);
  /// As drivers::Driver::open_stream(). Error(kUnsupported) also where there is no driver yet.
  std::shared_ptr<hub::NodeStream> open_stream(const spec::ClusterSpec& cluster, const orders::StreamRequest& request,
                                               std::size_t node);
  /// Where a node of the cluster is; empty where only attempts have addresses.
  std::string address_of(const spec::ClusterSpec& cluster, const std::string& node, catalog::Id id);
  /// Why nobody provides the cluster's nodes at present; nothing where somebody does.
  std::optional<std::string> problem_of(catalog::Id cluster) const GYRE_EXCLUDES(mutex_);
  /// Why a waiting job waits; nothing when it does not wait.
  std::optional<resources::Explanation> explain(catalog::Id job) GYRE_EXCLUDES(ledger_.mutex);
  CoresInUse cores_in_use(const std::string& workspace) GYRE_EXCLUDES(ledger_.mutex);
  /// Where logs ("stdouterr") and outputs of the job's latest attempt lie on this machine; empty without an attempt.
  std::vector<resources::OutputDirectory> output_directories(const catalog::Job& job) GYRE_EXCLUDES(ledger_.mutex);

 private:
  using Attempt = catalog::Attempt;

  void run();
  /// A catalog that was copied from a backup does not know what happened since.
  void restore();
  /// What this service knows and the catalog does not, once.
  void enter_what_is_new() GYRE_REQUIRES(ledger_.mutex);
  void end_restore() GYRE_REQUIRES(ledger_.mutex);
  void take_over();
  void turn();
  void wait(int limit_ms);
  /// Has the clusters that are new served by the workers of their drivers, and starts those that are new.
  void assign_clusters() GYRE_REQUIRES(ledger_.mutex);
  void wake_workers() GYRE_EXCLUDES(mutex_);

  void decide();
  void act(const scheduler::Decision& decision) GYRE_REQUIRES(ledger_.mutex);
  void start(const scheduler::StartJob& action, const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void end(catalog::Id job, int attempt, resources::EndIntent intent, orders::StopReason reason,
           const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void allocate(const scheduler::AllocateNodes& action, const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  void release(const catalog::Node& node, const catalog::Cause& cause) GYRE_REQUIRES(ledger_.mutex);
  /// What has been kept for long enough goes, once in a while and a part at a time.
  void forget_old() GYRE_REQUIRES(ledger_.mutex);
  void settle_clusters() GYRE_REQUIRES(ledger_.mutex);
  static bool is_gone(const catalog::Node& node);
  /// As output_directories(). `settled`: they will stay so.
  struct Directories {
    std::vector<resources::OutputDirectory> list;
    bool settled = false;
  };
  Directories find_directories(const Attempt& attempt, const catalog::Cluster& cluster)
      GYRE_EXCLUDES(ledger_.mutex, mutex_);
  void remove_lost_nodes() GYRE_REQUIRES(ledger_.mutex);
  void remove_deleted() GYRE_REQUIRES(ledger_.mutex);
  /// False, and a line in the log, where it fails in a way that it would again: others must not wait for it.
  bool attempt_alone(const std::string& what, const std::function<void()>& change) GYRE_REQUIRES(ledger_.mutex);

  const ServiceOptions& options_;
  Ledger& ledger_;
  std::function<void()> changed_;
  Drivers drivers_;
  net::Notifier notifier_;
  SchedulerView view_ GYRE_GUARDED_BY(ledger_.mutex);
  Trouble trouble_;                                      // The thread's own.
  bool acted_ = false;                                   // In this turn; so is this.
  SteadyClock::time_point next_forgetting_{};            // And this.
  bool entered_ GYRE_GUARDED_BY(ledger_.mutex) = false;  // By enter_what_is_new().
  std::atomic<bool> asked_{true};                        // By somebody who has changed the catalog.
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::map<Drivers::Key, std::unique_ptr<Worker>> workers_ GYRE_GUARDED_BY(mutex_);
  std::map<catalog::Id, const Worker*> worker_of_ GYRE_GUARDED_BY(mutex_);  // By cluster.
  std::map<catalog::Id, std::string> unreadable_ GYRE_GUARDED_BY(mutex_);   // The clusters without one, and why.
  std::map<std::string, std::vector<resources::OutputDirectory>> directories_ GYRE_GUARDED_BY(mutex_);  // By attempt.
  std::thread thread_;
};

}  // namespace gyre::jobs::service
