#include "gyre/train/engine_exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/train/data_timeline.h"

namespace gyre::train {

namespace {

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

engine::Shape shape_of(const at::Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

void require_plain(const NamedTensor& tensor) {
  if (tensor.tensor.is_cpu() && tensor.tensor.is_contiguous()) return;
  throw Error(ErrorCode::kUnsupported, fmt::format("'{}' must be a contiguous tensor on the CPU", tensor.name));
}

}  // namespace

engine::DataType data_type_of(const at::Tensor& tensor) {
  using engine::DataType;
  switch (tensor.scalar_type()) {
    case at::kByte: return DataType::kUint8;
    case at::kChar: return DataType::kInt8;
    case at::kShort: return DataType::kInt16;
    case at::kInt: return DataType::kInt32;
    case at::kLong: return DataType::kInt64;
    case at::kHalf: return DataType::kFloat16;
    case at::kBFloat16: return DataType::kBfloat16;
    case at::kFloat: return DataType::kFloat32;
    case at::kDouble: return DataType::kFloat64;
    case at::kBool: return DataType::kBoolean;
    default:
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("tensors of type {} cannot be exchanged", c10::toString(tensor.scalar_type())));
  }
}

class EngineExchange::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  /// `earlier`: the hook that was there before; a tensor has room for one.
  Hook(EngineExchange& exchange, std::size_t index, std::unique_ptr<PostAccumulateGradHook> earlier)
      : exchange_(exchange), index_(index), earlier_(std::move(earlier)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (earlier_) (*earlier_)(parameter);
    exchange_.take_gradient(index_);
  }

  EngineExchange& exchange() const { return exchange_; }
  std::unique_ptr<PostAccumulateGradHook> take_earlier() { return std::move(earlier_); }

  /// The one on this parameter, if it is an exchange's.
  static Hook* on(const at::Tensor& parameter) {
    return dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
  }

 private:
  EngineExchange& exchange_;
  const std::size_t index_;
  std::unique_ptr<PostAccumulateGradHook> earlier_;
};

EngineExchange::EngineExchange(engine::Runtime& runtime, const ExchangeOptions& options)
    : runtime_(runtime), options_(options), number_(runtime.engine().next_exchange()) {}

EngineExchange::~EngineExchange() {
  take_hooks_off();
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    at::Tensor& parameter = parameters_[index].tensor;
    if (index < places_.size() && parameter.grad().defined() && parameter.grad().is_alias_of(places_[index].tensor())) {
      parameter.mutable_grad() = parameter.grad().clone();
    }
  }
}

void EngineExchange::take_hooks_off() {
  for (const NamedTensor& parameter : parameters_) {
    Hook* hook = Hook::on(parameter.tensor);
    if (hook == nullptr || &hook->exchange() != this) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, hook->take_earlier());
  }
}

void EngineExchange::attach(const NamedTensors& parameters) {
  if (!parameters_.empty()) throw Error(ErrorCode::kInvalidArgument, "an exchange is attached to parameters once");
  for (const NamedTensor& parameter : parameters) require_plain(parameter);
  parameters_.assign(parameters.rbegin(), parameters.rend());
  try {
    runtime_.engine().check_plan(describe_tensors(), plan_options());
  } catch (const Error&) {
    parameters_.clear();  // They have no hooks yet.
    throw;
  }
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    const at::Tensor& parameter = parameters_[index].tensor;
    if (const Hook* hook = Hook::on(parameter)) {
      EngineExchange& older = hook->exchange();
      older.retired_ = true;
      older.take_hooks_off();
    }
    auto& place = torch::autograd::impl::post_acc_grad_hooks(parameter);
    place = std::make_unique<Hook>(*this, index, std::move(place));
  }
}

std::vector<engine::PlanTensor> EngineExchange::describe_tensors() const {
  std::vector<engine::PlanTensor> tensors;
  for (const NamedTensor& parameter : parameters_) {
    tensors.push_back({parameter.name, data_type_of(parameter.tensor), shape_of(parameter.tensor)});
  }
  return tensors;
}

engine::PlanOptions EngineExchange::plan_options() const {
  engine::PlanOptions options;
  options.name = number_ == 1 ? "gradients" : fmt::format("gradients.{}", number_);
  options.operation = options_.operation;
  options.wire = options_.wire;
  options.error_feedback = options_.error_feedback;
  options.ready_order = arrived_;
  return options;
}

void EngineExchange::take_gradient(std::size_t index) {
  has_new_gradients_ = true;
  if (plan_) {
    contribute(index);
  } else if (std::find(arrived_.begin(), arrived_.end(), index) == arrived_.end()) {
    arrived_.push_back(index);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the gradient of '{}' was computed again before the first step ended: call step() or "
                            "synchronize() between",
                            parameters_[index].name));
  }
}

void EngineExchange::contribute(std::size_t index) {
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::NoGradGuard no_grad;
  if (gradient.defined() && gradient.data_ptr() != places_[index].tensor().data_ptr()) {
    places_[index].free();
    const at::Tensor& place = places_[index].tensor();
    const at::Tensor contribution = gradient;
    // Autograd's own tensor is not needed any more, unless somebody differentiates through it.
    if (!gradient.requires_grad()) gradient = place;
    if (contribution.scalar_type() == place.scalar_type() && contribution.strides() == place.strides() &&
        !contribution.is_neg()) {
      return plan_->contribute(index,
                               {static_cast<const std::byte*>(contribution.const_data_ptr()), contribution.nbytes()});
    }
    place.copy_(contribution);
  }
  plan_->mark_ready(index);
}

void EngineExchange::make_plan() {
  plan_ = runtime_.engine().make_plan(describe_tensors(), plan_options());
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    places_.emplace_back(plan_->tensor(index), parameters_[index].tensor);
  }
  for (const std::size_t index : arrived_) contribute(index);
}

void EngineExchange::zero_gradients(bool set_to_none) {
  for (const NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      const at::NoGradGuard no_grad;
      gradient.zero_();
    }
  }
}

void EngineExchange::synchronize() {
  if (parameters_.empty()) throw Error(ErrorCode::kInvalidArgument, "attach the parameters before the first step");
  if (retired_) {
    throw Error(ErrorCode::kInvalidArgument,
                "a newer DistributedOptimizer exchanges the gradients of these parameters now: use that one");
  }
  if (!plan_) make_plan();
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (plan_->is_ready(index)) continue;
    if (parameters_[index].tensor.grad().defined()) {
      contribute(index);  // Put there by somebody else than backward().
    } else {
      places_[index].free();  // Zeros will stand there.
    }
  }
  has_new_gradients_ = false;
  plan_->finish_step();
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    parameters_[index].tensor.mutable_grad() = places_[index].tensor();
  }
}

void EngineExchange::broadcast(const NamedTensors& tensors) {
  // What is wrong with one of them is found before anything is submitted.
  std::vector<engine::Request> requests;
  for (const NamedTensor& tensor : tensors) {
    require_plain(tensor);
    engine::Request& request = requests.emplace_back();
    request.name = fmt::format("broadcast.{}.{}.{}", number_, calls_, tensor.name);
    request.signature = {.kind = engine::OperationKind::kBroadcast,
                         .type = data_type_of(tensor.tensor),
                         .shape = shape_of(tensor.tensor)};
    request.input = memory_of(tensor.tensor);
    request.output = memory_of(tensor.tensor);
    request.transient = true;
  }
  ++calls_;
  std::vector<engine::Handle> handles;
  std::exception_ptr failure;
  try {
    for (engine::Request& request : requests) handles.push_back(runtime_.engine().submit(std::move(request)));
  } catch (const Error&) {
    failure = std::current_exception();
  }
  // All are waited for before one may throw: until then the engine may write to the tensors.
  for (const engine::Handle& handle : handles) {
    try {
      handle.wait();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void EngineExchange::sum(std::span<double> values) {
  engine::Request request;
  request.name = fmt::format("metrics.{}.{}", number_, calls_++);
  request.signature = {.kind = engine::OperationKind::kAllreduce,
                       .type = engine::DataType::kFloat64,
                       .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = std::as_bytes(values);
  request.output = std::as_writable_bytes(values);
  request.transient = true;
  static_cast<void>(runtime_.engine().run(std::move(request)));
}

void EngineExchange::note_wait(std::string_view row, const data::BatchWait& wait) {
  add_wait_to_timeline(runtime_.engine(), row, wait);
}

}  // namespace gyre::train
