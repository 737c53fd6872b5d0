#pragma once

#include <cstdint>

namespace gyre::train {

/// The learning rate of large-batch training: the base rate, multiplied when more ranks make the global batch larger,
/// reached step by step. Source: Goyal et al., arXiv 1706.02677, section 2.2 (linear scaling, gradual warm-up).
struct LearningRateSchedule {
  double base = 1e-4;
  double scale = 1.0;              ///< The number of ranks for linear scaling; 1 for none.
  std::uint64_t warmup_steps = 0;  ///< Steps from `base` to `base * scale`, in equal increments; 0: at once.

  /// The rate of step `step`, counted from 0 over the whole run.
  double at(std::uint64_t step) const;
};

}  // namespace gyre::train
