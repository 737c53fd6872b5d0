#pragma once

#include <cstdint>
#include <map>

namespace gyre::train {

/// How often a warm-up climbs.
enum class WarmupUnit {
  kStep,   ///< Goyal et al.: gradually.
  kEpoch,  ///< Keras' LearningRateScheduler, and so the CosmoFlow benchmark: an epoch has one rate.
};

/// The learning rate of large-batch training: a warm-up from the base to the peak rate, which more ranks with their
/// larger global batch make higher, then the peak rate times the factor of the last boundary passed. Source: Goyal et
/// al., arXiv 1706.02677, section 2.2 (linear scaling, gradual warm-up).
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
