#pragma once

#include <cstdint>
#include <vector>

#include "gyre/train/tensors.h"

namespace gyre::train {

/// Where the learning rate stands; the two differ in steps after it has changed.
enum class MomentumConvention {
  kPytorch,  ///< v = m * v + g, w -= rate * v. Goyal et al. (arXiv 1706.02677, remark 2) call this the reference.
  kKeras,    ///< v = m * v - rate * g, w += v: the rate of each gradient is the one of its own step.
};

struct SgdOptions {
  double momentum = 0.9;
  bool nesterov = false;  ///< Steps to where the momentum will have led.
  MomentumConvention convention = MomentumConvention::kPytorch;
};

/// A parameter, and what is added to its gradient: weight_decay * parameter. Keras' l2(c) is a weight decay of 2c.
struct DecayedParameter {
  NamedTensor parameter;
  double weight_decay = 0;
};

/// Stochastic gradient descent with momentum, in the parameters' own precision, element by element, so equal gradients
/// give equal bits on every rank. Not thread-safe.
class Sgd {
 public:
  Sgd(std::vector<DecayedParameter> parameters, const SgdOptions& options);

  /// One step with the parameters' gradients; a parameter without one stays as it is.
  void step(double learning_rate);

  /// The velocities, "velocity/<parameter>": to save, broadcast and hash. They share the optimizer's memory.
  const NamedTensors& state() const { return velocities_; }

 private:
  std::vector<DecayedParameter> parameters_;
  NamedTensors velocities_;
  SgdOptions options_;
};

}  // namespace gyre::train
