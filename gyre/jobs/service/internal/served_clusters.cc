#include "gyre/jobs/service/internal/served_clusters.h"

namespace gyre::jobs::service {

void ServedClusters::add(catalog::Id cluster) {
  const MutexLock lock(mutex_);
  clusters_.insert(cluster);
}

bool ServedClusters::contains(catalog::Id cluster) const {
  const MutexLock lock(mutex_);
  return clusters_.contains(cluster);
}

std::set<catalog::Id> ServedClusters::all() const {
  const MutexLock lock(mutex_);
  return clusters_;
}

std::vector<catalog::Attempt> ServedClusters::attempts(Ledger& ledger) const {
  std::vector<catalog::Attempt> own = ledger.catalog.attempts().unended();
  std::erase_if(own, [&](const catalog::Attempt& attempt) GYRE_REQUIRES(ledger.mutex) {
    return !contains(ledger.catalog.jobs().get(attempt.job).cluster);
  });
  return own;
}

}  // namespace gyre::jobs::service
