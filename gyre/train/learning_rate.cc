#include "gyre/train/learning_rate.h"

#include <iterator>

namespace gyre::train {

double EpochSchedule::at(std::uint64_t epoch, double done) const {
  if (epoch < warmup_epochs) {
    const double trained = static_cast<double>(epoch) + (warmup_unit == WarmupUnit::kStep ? done : 0);
    return base + (peak - base) * trained / static_cast<double>(warmup_epochs);
  }
  const auto next = factors.upper_bound(epoch);
  return next == factors.begin() ? peak : peak * std::prev(next)->second;
}

}  // namespace gyre::train
