#include "gyre/train/local_steps.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <utility>

#include "gyre/base/error.h"

namespace gyre::train {

LocalSteps::LocalSteps(GradientExchange& inner, std::uint64_t steps, params::OuterOptimizer outer)
    : inner_(inner),
      steps_(steps),
      rule_(params::outer_rule(outer, inner.size())),
      rate_(params::outer_rate(outer)),
      exchanges_(at::zeros({1}, at::kLong)) {}

void LocalSteps::attach(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("'{}' is of type {}; local steps are for contiguous float32 tensors on the CPU", name,
                              c10::toString(tensor.scalar_type())));
    }
    common_.push_back({name, tensor.detach().clone().set_requires_grad(true)});
    NamedTensors& slots = slots_.emplace_back();
    for (std::size_t slot = 0; slot < rule_.slots(); ++slot) {
      slots.push_back({fmt::format("outer.{}.{}", slot, name),
                       at::full(tensor.sizes(), rule_.initial_slot_value(slot), at::kFloat)});
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

NamedTensors LocalSteps::state() const {
  if (rule_.slots() == 0) return {};
  NamedTensors state = {{"outer.steps", exchanges_}};
  for (const NamedTensors& slots : slots_) state.insert(state.end(), slots.begin(), slots.end());
  return state;
}

void LocalSteps::exchange() {
  const c10::NoGradGuard no_grad;
  steps_alone_ = 0;
  const std::int64_t exchanges = ++*exchanges_.mutable_data_ptr<std::int64_t>();
  inner_.zero_gradients();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    common_[i].tensor.mutable_grad() = common_[i].tensor.detach() - parameters_[i].tensor.detach();
  }
  inner_.synchronize();
  const std::vector<std::span<float>> values = values_of(common_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& difference = common_[i].tensor.grad();
    rule_.apply(values[i], {difference.const_data_ptr<float>(), values[i].size()}, values_of(slots_[i]),
                static_cast<std::uint64_t>(exchanges), rate_);
    parameters_[i].tensor.copy_(common_[i].tensor);
  }
}

}  // namespace gyre::train
