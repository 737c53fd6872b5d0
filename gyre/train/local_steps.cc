#include "gyre/train/local_steps.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <utility>

#include "gyre/base/error.h"

namespace gyre::train {

LocalSteps::LocalSteps(GradientExchange& inner, std::uint64_t steps, params::OuterOptimizer outer)
    : inner_(inner), steps_(steps), rule_(params::outer_rule(outer, inner.size())), rate_(params::outer_rate(outer)) {}

void LocalSteps::attach(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("'{}' is of type {}; local steps are for contiguous float32 tensors on the CPU", name,
                              c10::toString(tensor.scalar_type())));
    }
    common_.push_back({name, tensor.detach().clone().set_requires_grad(true)});
    auto& slots = state_.emplace_back();
    for (std::size_t slot = 0; slot < rule_.slots(); ++slot) {
      slots.emplace_back(static_cast<std::size_t>(tensor.numel()), rule_.initial_slot_value(slot));
    }
  }
  inner_.attach(common_);
  parameters_ = parameters;
}

void LocalSteps::zero_gradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

/// The ranks have agreed on the first parameters since attach().
void LocalSteps::synchronize() {
  if (std::exchange(begun_, true)) return;
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) common_[i].tensor.copy_(parameters_[i].tensor);
}

void LocalSteps::finish_step() {
  if (++steps_alone_ == steps_) exchange();
}

void LocalSteps::settle() {
  if (steps_alone_ > 0) exchange();
}

void LocalSteps::exchange() {
  const c10::NoGradGuard no_grad;
  steps_alone_ = 0;
  ++exchanges_;
  inner_.zero_gradients();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    common_[i].tensor.mutable_grad() = common_[i].tensor.detach() - parameters_[i].tensor.detach();
  }
  inner_.synchronize();
  const std::vector<std::span<float>> values = values_of(common_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& difference = common_[i].tensor.grad();
    const std::vector<std::span<float>> slots(state_[i].begin(), state_[i].end());
    rule_.apply(values[i], {difference.const_data_ptr<float>(), values[i].size()}, slots, exchanges_, rate_);
    parameters_[i].tensor.copy_(common_[i].tensor);
  }
}

}  // namespace gyre::train
