#include "gyre/train/sgd.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace gyre::train {

Sgd::Sgd(std::vector<DecayedParameter> parameters, const SgdOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const auto& [parameter, decay] : parameters_) {
    velocities_.push_back({"velocity/" + parameter.name, at::zeros_like(parameter.tensor.detach())});
  }
}

void Sgd::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  const bool keras = options_.convention == MomentumConvention::kKeras;
  // What a gradient weighs in the velocity, and the velocity in the parameter.
  const double in_velocity = keras ? -learning_rate : 1.0;
  const double in_parameter = keras ? 1.0 : -learning_rate;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor parameter = parameters_[i].parameter.tensor;
    if (!parameter.grad().defined()) continue;
    const double decay = parameters_[i].weight_decay;
    const at::Tensor gradient = decay == 0 ? parameter.grad() : parameter.grad().add(parameter, decay);
    at::Tensor velocity = velocities_[i].tensor;
    velocity.mul_(options_.momentum).add_(gradient, in_velocity);
    if (options_.nesterov) {
      parameter.add_(velocity, in_parameter * options_.momentum).add_(gradient, in_parameter * in_velocity);
    } else {
      parameter.add_(velocity, in_parameter);
    }
  }
}

}  // namespace gyre::train
