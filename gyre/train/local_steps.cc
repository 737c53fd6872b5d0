#include "gyre/train/local_steps.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <utility>

#include "gyre/base/error.h"

namespace gyre::train {
namespace {

NamedTensors gradients_of(const NamedTensors& tensors) {
  NamedTensors gradients;
  for (const auto& [name, tensor] : tensors) gradients.push_back({name, tensor.grad()});
  return gradients;
}

}  // namespace

LocalSteps::LocalSteps(GradientExchange& inner, std::uint64_t steps, params::OuterOptimizer outer)
    : inner_(inner), steps_(steps), outer_(outer) {}

void LocalSteps::attach(const NamedTensors& parameters) {
  std::vector<std::uint64_t> counts;
  for (const std::span<float> values : values_of(parameters)) counts.push_back(values.size());
  rounds_.emplace(steps_, outer_, inner_.size(), std::move(counts));
  for (const auto& [name, tensor] : parameters) {
    carriers_.push_back({name, at::empty_like(tensor.detach()).set_requires_grad(true)});
  }
  const auto notes = static_cast<std::int64_t>(rounds_->notes());
  carriers_.push_back({"local_steps.notes", at::empty({notes}, at::kFloat).set_requires_grad(true)});
  inner_.attach(carriers_);
  parameters_ = parameters;
  state_ = make_state();
}

void LocalSteps::zero_gradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

/// The ranks have agreed on the first parameters since attach().
void LocalSteps::synchronize() {
  if (!rounds_) throw Error(ErrorCode::kInvalidArgument, "attach the parameters before the first step");
  if (!rounds_->has_begun()) rounds_->begin(values_of(parameters_));
}

void LocalSteps::finish_step() {
  std::vector<bool> stepped;
  for (const NamedTensor& parameter : parameters_) stepped.push_back(parameter.tensor.grad().defined());
  if (rounds_->end_step(stepped)) exchange(false);
}

void LocalSteps::settle() {
  synchronize();
  while (!exchange(true)) {  // Others have steps left.
  }
}

/// Views of the rounds' own memory.
NamedTensors LocalSteps::make_state() {
  NamedTensors state;
  if (rounds_->slots() == 0) return state;
  state.push_back({"outer.steps", at::from_blob(&rounds_->outer_steps(), {1}, at::kLong)});
  for (std::size_t slot = 0; slot < rounds_->slots(); ++slot) {
    const std::vector<std::span<float>> values = rounds_->slot(slot);
    for (std::size_t i = 0; i < values.size(); ++i) {
      state.push_back({fmt::format("outer.{}.{}", slot, parameters_[i].name),
                       at::from_blob(values[i].data(), parameters_[i].tensor.sizes(), at::kFloat)});
    }
  }
  return state;
}

/// Whether all ranks settle.
bool LocalSteps::exchange(bool settles) {
  const c10::NoGradGuard no_grad;
  inner_.zero_gradients();
  for (const NamedTensor& carrier : carriers_) {
    carrier.tensor.mutable_grad() = at::empty_like(carrier.tensor.detach());
  }
  const std::vector<std::span<float>> own = values_of(gradients_of(carriers_));
  rounds_->give(values_of(parameters_), std::span(own).first(parameters_.size()), own.back(), settles);
  inner_.synchronize();
  const std::vector<std::span<float>> averages = values_of(gradients_of(carriers_));
  return rounds_->take(std::span(averages).first(parameters_.size()), averages.back(), values_of(parameters_));
}

}  // namespace gyre::train
