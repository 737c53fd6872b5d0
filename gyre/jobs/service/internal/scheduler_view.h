#pragma once

#include <functional>
#include <utility>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/scheduler/line.h"
#include "gyre/jobs/scheduler/state.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/internal/queue.h"
#include "gyre/jobs/spec/cluster_spec.h"

namespace gyre::jobs::service {

/// What the scheduler gets to see of the catalog. Not thread-safe.
class SchedulerView {
 public:
  /// `is_unusable`: whether nobody provides the cluster's nodes at present.
  explicit SchedulerView(std::function<bool(catalog::Id cluster)> is_unusable) : is_unusable_(std::move(is_unusable)) {}

  /// As it is now, without the waiting jobs: they are in waiting(), which this brings up to date.
  scheduler::State state(Ledger& ledger) GYRE_REQUIRES(ledger.mutex);
  const scheduler::Line& waiting() const { return queue_.waiting(); }

 private:
  void add_quotas(Ledger& ledger, scheduler::State& state) GYRE_REQUIRES(ledger.mutex);
  void add_nodes(Ledger& ledger, scheduler::State& state) GYRE_REQUIRES(ledger.mutex);
  resources::Scale scale_of(Ledger& ledger, const catalog::Cluster& cluster, const spec::ClusterSpec& spec)
      GYRE_REQUIRES(ledger.mutex);
  void add_clusters(Ledger& ledger, scheduler::State& state) GYRE_REQUIRES(ledger.mutex);

  const std::function<bool(catalog::Id cluster)> is_unusable_;
  Queue queue_;
};

}  // namespace gyre::jobs::service
