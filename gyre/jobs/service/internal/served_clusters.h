#pragma once

#include <set>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/service/internal/ledger.h"

namespace gyre::jobs::service {

/// The clusters that one driver serves. Thread-safe.
class ServedClusters {
 public:
  void add(catalog::Id cluster) GYRE_EXCLUDES(mutex_);
  bool contains(catalog::Id cluster) const GYRE_EXCLUDES(mutex_);
  std::set<catalog::Id> all() const GYRE_EXCLUDES(mutex_);
  /// Of jobs on these clusters, that have not ended.
  std::vector<catalog::Attempt> attempts(Ledger& ledger) const GYRE_REQUIRES(ledger.mutex);

 private:
  mutable Mutex mutex_;
  std::set<catalog::Id> clusters_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::service
