#pragma once

#include <cstdint>
#include <vector>

#include "gyre/train/optimizer.h"
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
class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<DecayedParameter> parameters, const SgdOptions& options);

  void step(double learning_rate) override;

  /// The velocities, "velocity/<parameter>".
  const NamedTensors& state() const override { return velocities_; }

 private:
  std::vector<DecayedParameter> parameters_;
  NamedTensors velocities_;
  SgdOptions options_;
};

}  // namespace gyre::train
