#pragma once

#include <cstdint>

#include "gyre/train/tensors.h"

namespace gyre::train {

/// What a training loop needs of an optimizer. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One step with the parameters' gradients; a parameter without one stays as it is.
  virtual void step(double learning_rate) = 0;

  /// What it keeps from step to step: to save, broadcast and hash. Shares the optimizer's memory.
  virtual const NamedTensors& state() const = 0;

  /// After a restart: how many steps the run has taken, for optimizers that count them.
  virtual void set_iteration(std::uint64_t /*iteration*/) {}
};

}  // namespace gyre::train
