#pragma once

#include <cstdint>
#include <map>

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

/// How often a warm-up climbs.
enum class WarmupUnit {
  kStep,   ///< Goyal et al.: gradually.
  kEpoch,  ///< Keras' LearningRateScheduler, and so the CosmoFlow benchmark: an epoch has one rate.
};

/// A warm-up from the base to the peak rate, then the peak rate times the factor of the last boundary passed.
struct EpochSchedule {
  double base = 0.1;
  double peak = 0.1;
  std::uint64_t warmup_epochs = 0;
  WarmupUnit warmup_unit = WarmupUnit::kStep;
  std::map<std::uint64_t, double> factors{};  ///< From which epoch on, counted from 0, the rate is peak * factor.

  /// The rate in epoch `epoch`, counted from 0, of which the share `done` (0 to below 1) has been trained.
  double at(std::uint64_t epoch, double done) const;
};

}  // namespace gyre::train
