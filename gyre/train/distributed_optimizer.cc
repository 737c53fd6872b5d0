#include "gyre/train/distributed_optimizer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/optim/lbfgs.h>

#include <set>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/train/optimizer_state.h"
#include "gyre/train/replicas.h"

namespace gyre::train {
namespace {

/// The identity of a parameter.
const void* id_of(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

void check_names(const NamedTensors& tensors) {
  std::set<std::string> seen;
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(name).second) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("there are several tensors with the name '{}'", name));
    }
  }
}

/// If a tensor has several names, the alphabetically last one counts, as in Python.
std::map<const void*, std::string> names_of(const NamedTensors& tensors) {
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : tensors) {
    std::string& last = names[id_of(tensor)];
    last = std::max(last, name);
  }
  return names;
}

/// Each once, with its name.
NamedTensors without_repetition(const NamedTensors& tensors, const std::map<const void*, std::string>& names) {
  NamedTensors result;
  std::set<const void*> seen;
  for (const auto& [name, tensor] : tensors) {
    if (seen.insert(id_of(tensor)).second) result.push_back({names.at(id_of(tensor)), tensor});
  }
  return result;
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& tensors,
                                           engine::Runtime& runtime, const ExchangeOptions& options)
    : optimizer_(optimizer),
      runtime_(runtime),
      unequal_replicas_(options.unequal_replicas),
      names_(names_of(tensors)),
      exchange_(runtime, options) {
  check_names(tensors);
  tensors_ = without_repetition(tensors, names_);
  std::set<const void*> unnamed;
  for (const at::Tensor& parameter : parameters_of(optimizer_)) {
    if (!names_.contains(id_of(parameter))) unnamed.insert(id_of(parameter));
  }
  if (!tensors.empty() && !unnamed.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the list of tensors names all but {} of the optimizer's parameters; name all, or none",
                            unnamed.size()));
  }
  const NamedTensors parameters = parameters_in_order();
  for (const auto& [name, parameter] : parameters) exchanged_.push_back(id_of(parameter));
  exchange_.attach(parameters);
}

NamedTensors DistributedOptimizer::parameters_in_order() const {
  NamedTensors parameters;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<at::Tensor>& members = groups[group].params();
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto name = names_.find(id_of(members[i]));
      parameters.push_back(
          {name != names_.end() ? name->second : fmt::format("parameter.{}.{}", group, i), members[i]});
    }
  }
  return parameters;
}

/// The program may have given the optimizer another group.
void DistributedOptimizer::follow_parameters() {
  std::vector<const void*> now;
  for (const at::Tensor& parameter : parameters_of(optimizer_)) now.push_back(id_of(parameter));
  if (now == exchanged_) return;
  exchange_.set_parameters(parameters_in_order());
  exchanged_ = std::move(now);
}

void DistributedOptimizer::broadcast_parameters() {
  if (runtime_.size() == 1) return;
  check_same_optimizers(optimizer_, runtime_);
  NamedTensors tensors = tensors_;
  for (const NamedTensor& parameter : parameters_in_order()) {
    if (!names_.contains(id_of(parameter.tensor))) tensors.push_back(parameter);
  }
  exchange_.broadcast(tensors);
  broadcast_optimizer_state(optimizer_, runtime_);
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  if (exchange_.is_under_way()) {
    throw Error(ErrorCode::kInvalidArgument,
                "zero_grad() was called after backward() but before step() or synchronize(): this step's gradients are "
                "exchanged with the other ranks. Call it before backward(); to leave out a step, call synchronize(), "
                "then zero_grad(), on every rank");
  }
  // Not by the optimizer's own, which cannot detach gradients that are views.
  zero_gradients_of(parameters_of(optimizer_), set_to_none);
  exchange_.forget_passes();
  synchronized_ = false;  // What was averaged without a step is thrown away.
}

/// Once, before the first step.
void DistributedOptimizer::compare_replicas() {
  if (compared_) return;
  train::compare_replicas(exchange_, parameters_in_order(), unequal_replicas_, runtime_.logger());
  compared_ = true;
}

void DistributedOptimizer::synchronize() {
  if (synchronized_ && exchange_.has_new_gradients()) {
    throw Error(ErrorCode::kInvalidArgument,
                "backward() has added to gradients that synchronize() had averaged already: call step() or zero_grad() "
                "between synchronize() and the next backward()");
  }
  if (synchronized_) return;
  follow_parameters();
  if (runtime_.size() > 1) compare_replicas();
  exchange_.synchronize();
  synchronized_ = true;
}

torch::Tensor DistributedOptimizer::step(const LossClosure& closure) {
  torch::Tensor result;
  if (closure) {
    const bool decides_by_loss = dynamic_cast<const torch::optim::LBFGS*>(&optimizer_) != nullptr;
    result = optimizer_.step([&] {
      synchronized_ = false;
      torch::Tensor loss = closure();
      synchronize();
      if (!decides_by_loss || runtime_.size() == 1) return loss;
      auto sum = loss.item<double>();
      exchange_.sum({&sum, 1});
      return at::full_like(loss.detach(), sum / runtime_.size());
    });
  } else {
    synchronize();
    result = optimizer_.step();
  }
  synchronized_ = false;
  return result;
}

}  // namespace gyre::train
