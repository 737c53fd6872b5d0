#pragma once

#include <cstdint>

#include "workloads/cifar10/options.h"

namespace gyre::train {
class GradientExchange;
}

namespace gyre::cifar10 {

struct Outcome {
  std::uint64_t epochs = 0;  ///< Finished, counting those before a resume.
  double train_loss = 0;     ///< Of the last epoch, over all ranks.
  double test_loss = 0;
  double test_accuracy = 0;
  bool target_reached = false;   ///< False when no target was given.
  std::uint64_t state_hash = 0;  ///< Of parameters and optimizer state: equal for equal runs.
};

/// Trains as `options` say, together with the other ranks of `exchange`. Collective. Rank 0 prints, saves checkpoints
/// and writes TensorBoard files. Errors are those of its parts and say what to do.
Outcome run_training(const Options& options, train::GradientExchange& exchange);

}  // namespace gyre::cifar10
