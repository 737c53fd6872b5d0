#include "gyre/train/learning_rate.h"

namespace gyre::train {

double LearningRateSchedule::at(std::uint64_t step) const {
  const double full = base * scale;
  if (step >= warmup_steps) return full;
  return base + (full - base) * static_cast<double>(step) / static_cast<double>(warmup_steps);
}

}  // namespace gyre::train
