#pragma once

#include <functional>
#include <vector>

#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/resources/cluster_use.h"

namespace gyre::jobs::service {

/// How many there are now.
struct ClusterNow {
  int running = 0;  ///< Nodes that have a job.
  int idle = 0;
  int other = 0;    ///< All other nodes.
  int waiting = 0;  ///< Jobs in the queue.
};

/// A cluster's use over a time that ends now, from the events that led to what is so now: walks back through them.
/// Holds no more than the answer. Pure.
class UseHistory {
 public:
  /// `parts`: 1 or more.
  UseHistory(const ClusterNow& now, catalog::TimeUs begin, catalog::TimeUs end, int parts);

  /// One of the cluster, or of its jobs, the newest first. False: it is older than the time asked for, as all others.
  bool take(const catalog::Event& event);
  /// `all_known`: take() has had every event of that time; else what is before the last of them is unknown.
  resources::ClusterUse result(bool all_known) &&;

 private:
  void add_until(catalog::TimeUs time);

  resources::ClusterUse use_;
  ClusterNow now_;
  catalog::TimeUs reached_;  ///< What is behind it has been added.
};

}  // namespace gyre::jobs::service
