#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::service {

/// Clusters whose drivers could not be made when the service started, and why. Thread-safe.
class UnusableClusters {
 public:
  std::optional<std::string> problem_of(catalog::Id cluster) const {
    const MutexLock lock(mutex_);
    const auto found = problems_.find(cluster);
    return found == problems_.end() ? std::nullopt : std::optional(found->second);
  }
  bool contains(catalog::Id cluster) const { return problem_of(cluster).has_value(); }
  bool empty() const {
    const MutexLock lock(mutex_);
    return problems_.empty();
  }
  std::vector<catalog::Id> all() const {
    const MutexLock lock(mutex_);
    std::vector<catalog::Id> all;
    for (const auto& [cluster, problem] : problems_) all.push_back(cluster);
    return all;
  }
  void set(catalog::Id cluster, const std::string& problem) {
    const MutexLock lock(mutex_);
    problems_[cluster] = problem;
  }
  void erase(catalog::Id cluster) {
    const MutexLock lock(mutex_);
    problems_.erase(cluster);
  }

 private:
  mutable Mutex mutex_;
  std::map<catalog::Id, std::string> problems_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::service
