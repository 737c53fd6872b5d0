#pragma once

#include <cstdint>

#include "gyre/train/optimizer.h"
#include "gyre/train/tensors.h"

namespace gyre::train {

struct RmspropOptions {
  double decay = 1e-6;  ///< Of the learning rate, per step.
  double rho = 0.9;
  double epsilon = 1e-7;
};

/// RMSprop as Keras defines it (torch's has other defaults, and no decay). Step i, counted from 0, with gradient g:
///   mean_square = rho * mean_square + (1 - rho) * g²
///   parameter  -= learning_rate / (1 + decay * i) * g / (sqrt(mean_square) + epsilon)      (epsilon outside the root)
/// Everything in the parameters' own precision, element by element, so equal gradients give equal bits on every rank.
/// Source: keras/optimizers.py (RMSprop), version 2.1. Not thread-safe.
class Rmsprop final : public Optimizer {
 public:
  Rmsprop(NamedTensors parameters, const RmspropOptions& options);

  void step(double learning_rate) override;

  /// Steps done so far; the decay counts on from here after a restart.
  std::uint64_t iteration() const { return iteration_; }
  void set_iteration(std::uint64_t iteration) override { iteration_ = iteration; }

  /// The mean squares, "rmsprop/<parameter>".
  const NamedTensors& state() const override { return mean_squares_; }

 private:
  NamedTensors parameters_;
  NamedTensors mean_squares_;
  RmspropOptions options_;
  std::uint64_t iteration_ = 0;
};

}  // namespace gyre::train
