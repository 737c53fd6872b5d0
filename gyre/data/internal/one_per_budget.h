#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data::internal {

/// What all readers with the same budget share, as long as one of them lives. Thread-safe.
template <typename Shared>
class OnePerBudget {
 public:
  /// The one of this budget, else what `make` returns. Without a budget it is a new one.
  std::shared_ptr<Shared> of(const std::shared_ptr<MemoryBudget>& budget,
                             const std::function<std::shared_ptr<Shared>()>& make) GYRE_EXCLUDES(mutex_) {
    if (!budget) return make();
    const MutexLock lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return known.shared.expired(); });
    for (const Known& known : known_) {
      if (known.budget.lock() != budget) continue;
      if (auto shared = known.shared.lock()) return shared;
    }
    auto shared = make();
    known_.push_back({budget, shared});
    return shared;
  }

 private:
  struct Known {
    std::weak_ptr<MemoryBudget> budget;
    std::weak_ptr<Shared> shared;
  };
  Mutex mutex_;
  std::vector<Known> known_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::data::internal
