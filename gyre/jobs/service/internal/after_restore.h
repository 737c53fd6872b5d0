#pragma once

#include <set>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/internal/served_clusters.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// After the catalog was restored from a backup what nodes do may be newer than what is written down. For the thread of
/// one driver; all arguments must outlive it.
class AfterRestore {
 public:
  AfterRestore(const ServiceOptions& options, Ledger& ledger, const ServedClusters& clusters)
      : options_(options), ledger_(ledger), clusters_(clusters) {}

  /// What the nodes do is entered, and what they do and nobody wants to know of ends. Whether the catalog has changed;
  /// nothing happens where it was not restored. Error(kUnsupported) says what is waited for; to be called again then.
  bool look_around(drivers::Driver& driver) GYRE_EXCLUDES(ledger_.mutex);
  /// What nodes have in hand, and nobody wants.
  const std::vector<orders::WorkOrder>& unwanted() const { return unwanted_; }
  /// Whether it is news of an attempt that nobody wants, and has been seen to.
  bool settle(const drivers::Event& event, drivers::Driver& driver) GYRE_EXCLUDES(ledger_.mutex);

 private:
  /// What has ended at nodes, and no service has heard of, has ended; what they have in hand becomes an attempt of the
  /// catalog's again where it can; the others are to be ended.
  void enter(const drivers::AtNodes& found) GYRE_REQUIRES(ledger_.mutex);
  /// Attempts that no node knows have ended.
  void end_unknown(const std::set<std::string>& known) GYRE_REQUIRES(ledger_.mutex);
  /// The uuids of those that the clusters have.
  std::set<std::string> jobs_that_may_run() GYRE_REQUIRES(ledger_.mutex);
  void wait_for_other_machines(const drivers::Driver& driver, const catalog::BackupMark& mark)
      GYRE_REQUIRES(ledger_.mutex);

  const ServiceOptions& options_;
  Ledger& ledger_;
  const ServedClusters& clusters_;
  std::vector<orders::WorkOrder> unwanted_;
  const SteadyClock::time_point made_ = SteadyClock::now();
};

}  // namespace gyre::jobs::service
