#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/service/internal/after_restore.h"
#include "gyre/jobs/service/internal/drivers.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/internal/served_clusters.h"
#include "gyre/jobs/service/internal/trouble.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::service {

/// The thread that works with one driver, for all clusters that have it: it carries out what the catalog says is to be
/// done with their attempts and nodes, and writes down what the driver reports. It holds no lock while the driver
/// works, so that one that hangs holds up its own clusters only.
class Worker {
 public:
  struct Surroundings {
    const ServiceOptions& options;
    Ledger& ledger;
    Drivers& drivers;
    std::function<void()> acted;  ///< Called, without any lock, when the catalog has changed.
  };

  /// `restored`: the catalog was, and the nodes may know more.
  Worker(const Surroundings& surroundings, Drivers::Key key, bool restored);
  /// Leaves jobs and node programs as they are. Waits for the driver.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// From now on it works for this cluster too. Before start() for those that a service before this one had.
  void add(catalog::Id cluster) { clusters_.add(cluster); }
  void start();
  /// The catalog has something new to act on. Thread-safe.
  void wake() { notifier_.notify(); }
  /// Whether it has seen to everything once, or cannot. Thread-safe.
  bool has_begun() const { return begun_; }
  /// Whether it has taken over what a service before it had. Thread-safe.
  bool has_taken_over() const { return taken_over_; }
  /// Why nobody provides the clusters' nodes at present; nothing where somebody does. Thread-safe.
  std::optional<std::string> problem() const;

 private:
  using Attempt = catalog::Attempt;
  enum class Told { kSubmit, kCancel };

  void run();
  /// How long to wait after it.
  int turn();
  void wait(int limit_ms);
  bool is_ready();
  void take_over();
  /// For an attempt that was begun by a service before this one. Where its job cannot be read the attempt is given up,
  /// and there is no order.
  std::optional<orders::WorkOrder> order_to_continue(const drivers::Driver& driver, const Attempt& attempt)
      GYRE_REQUIRES(ledger_.mutex);

  void submit_planned();
  /// Those that are planned and not submitted.
  std::vector<orders::WorkOrder> planned_orders(std::vector<std::string>& handed_over) GYRE_EXCLUDES(ledger_.mutex);
  /// Takes those out that the driver cannot begin yet, and writes down why.
  void set_aside_waiting(std::vector<orders::WorkOrder>& orders) GYRE_EXCLUDES(ledger_.mutex);
  /// It has not begun, and ends so.
  void refuse(const std::string& attempt, const std::string& code, const std::string& why);
  orders::StopReason stop_reason_of(const Attempt& attempt) GYRE_REQUIRES(ledger_.mutex);
  void cancel_ending();
  std::vector<std::string> left_running();
  void release_nodes();
  void hear_all();
  void hear(const drivers::Event& event);
  void finish(const std::string& attempt, const hub::AttemptResult& result);
  void lose(const std::string& node, const std::string& why);

  const Surroundings surroundings_;
  Ledger& ledger_;
  const Drivers::Key key_;
  Trouble trouble_;
  ServedClusters clusters_;
  net::Notifier notifier_;
  mutable Mutex mutex_;
  std::optional<std::string> problem_ GYRE_GUARDED_BY(mutex_);  // Why there is no driver.
  std::atomic<std::int64_t> working_since_ms_{0};               // By the steady clock; 0 while it waits.
  std::atomic<bool> begun_{false};
  std::atomic<bool> taken_over_{false};
  std::atomic<bool> stopping_{false};
  drivers::Driver* driver_ = nullptr;  // The thread's own, as what follows; null until it has taken over.
  bool acted_ = false;                 // In this turn.
  std::deque<drivers::Event> unheard_;
  std::map<std::string, Told> told_;  // What the driver was told last, by attempt.
  AfterRestore after_restore_;
  std::thread thread_;
};

}  // namespace gyre::jobs::service
