#include "gyre/train/rmsprop.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace gyre::train {

Rmsprop::Rmsprop(NamedTensors parameters, const RmspropOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const NamedTensor& parameter : parameters_) {
    mean_squares_.push_back({"rmsprop/" + parameter.name, at::zeros_like(parameter.tensor.detach())});
  }
}

void Rmsprop::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  const double rate = learning_rate / (1.0 + options_.decay * static_cast<double>(iteration_));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor parameter = parameters_[i].tensor;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    at::Tensor mean_square = mean_squares_[i].tensor;
    mean_square.mul_(options_.rho).addcmul_(gradient, gradient, 1.0 - options_.rho);
    parameter.addcdiv_(gradient, mean_square.sqrt().add_(options_.epsilon), -rate);
  }
  ++iteration_;
}

}  // namespace gyre::train
