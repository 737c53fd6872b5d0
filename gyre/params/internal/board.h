#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/params/ledger.h"

namespace gyre::params::internal {

/// Sums of a few numbers over the workers, in the order of the workers. Thread-safe.
class Board {
 public:
  struct Sum {
    std::vector<int> workers;
    std::shared_ptr<const std::vector<double>> values;
  };

  explicit Board(int workers) : ledger_(workers, 1, {}), given_(static_cast<std::size_t>(workers)) {}

  /// The sum and the workers that get it, when all have given their values. Error(kMismatch) where their number
  /// differs.
  std::optional<Sum> give(int worker, std::vector<double> values);
  /// The sum that the other workers were waiting for, if any. See Ledger.
  std::optional<Sum> leave(int worker);
  std::optional<Sum> lose(int worker);

 private:
  std::optional<Sum> sum_of(const std::vector<Ledger::Decision>& decisions) const GYRE_REQUIRES(mutex_);

  Mutex mutex_;
  Ledger ledger_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::vector<double>> given_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::params::internal
