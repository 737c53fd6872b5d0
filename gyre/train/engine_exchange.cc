#include "gyre/train/engine_exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/train/data_timeline.h"

namespace gyre::train {

namespace {

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

engine::Shape shape_of(const at::Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

void require_exchangeable(const NamedTensor& tensor) {
  if (!tensor.tensor.is_cpu() || tensor.tensor.layout() != at::kStrided) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("'{}' is a {} tensor on '{}'; only dense tensors on the CPU can be exchanged", tensor.name,
                            c10::str(tensor.tensor.layout()), c10::str(tensor.tensor.device())));
  }
  static_cast<void>(data_type_of(tensor.tensor));
}

/// Elements travel in the order in which they lie in memory, so ranks must agree on it: an unusual one is part of the
/// name. Python's optimizer does the same.
std::string layout_name(const NamedTensor& parameter) {
  const at::Tensor layout = gradient_layout(parameter.tensor);
  if (layout.is_contiguous()) return parameter.name;
  return fmt::format("{} (strides [{}])", parameter.name, fmt::join(layout.strides(), ", "));
}

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version());
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

/// A parameter that was attached.
struct EngineExchange::Member {
  NamedTensor parameter;
  std::optional<std::size_t> index{};     // In the plan.
  std::optional<GradientPlace> place{};   // In the arena, once there is a plan.
  int passes = 0;                         // Of backward, whose gradient has arrived since the last step.
  bool complete = false;                  // In this step; handed in, if there is a plan.
  const c10::TensorImpl* sent = nullptr;  // What its gradient was then,
  std::uint32_t sent_version = 0;         // and how often it had been changed.
  bool hooked = false;

  at::Tensor& gradient() const { return parameter.tensor.mutable_grad(); }

  void note_sent() {
    sent = gradient().unsafeGetTensorImpl();
    sent_version = version_of(gradient());
  }

  bool changed_since_sent() const {
    if (!complete) return false;
    return !gradient().defined() || gradient().unsafeGetTensorImpl() != sent || version_of(gradient()) != sent_version;
  }

  void begin_step() {
    passes = 0;
    complete = false;
    sent = nullptr;
  }
};

void zero_gradients_of(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      gradient.zero_();
    }
  }
}

class EngineExchange::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  /// `earlier`: the hook that was there before; a tensor has room for one.
  Hook(EngineExchange& exchange, Member& member, std::unique_ptr<PostAccumulateGradHook> earlier)
      : exchange_(exchange), member_(member), earlier_(std::move(earlier)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (earlier_) (*earlier_)(parameter);
    exchange_.take_gradient(member_);
  }

  EngineExchange& exchange() const { return exchange_; }
  std::unique_ptr<PostAccumulateGradHook> take_earlier() { return std::move(earlier_); }

  /// The one on this parameter, if it is an exchange's.
  static Hook* on(const at::Tensor& parameter) {
    return dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
  }

 private:
  EngineExchange& exchange_;
  Member& member_;
  std::unique_ptr<PostAccumulateGradHook> earlier_;
};

EngineExchange::EngineExchange(engine::Runtime& runtime, const ExchangeOptions& options)
    : runtime_(runtime), options_(options), number_(runtime.engine().next_exchange()) {
  set_backward_passes_per_step(options.backward_passes_per_step);
}

EngineExchange::~EngineExchange() {
  take_hooks_off();
  for (const auto& member : known_) {
    if (member->place && member->gradient().defined() && member->gradient().is_alias_of(member->place->tensor())) {
      member->gradient() = member->gradient().clone();
    }
  }
}

void EngineExchange::take_hooks_off() {
  for (const auto& member : known_) {
    const at::Tensor& parameter = member->parameter.tensor;
    Hook* hook = member->hooked ? Hook::on(parameter) : nullptr;
    member->hooked = false;
    if (hook == nullptr || &hook->exchange() != this) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->take_earlier());
  }
}

void EngineExchange::attach(const NamedTensors& parameters) {
  if (!attached_.empty()) throw Error(ErrorCode::kInvalidArgument, "an exchange is attached to parameters once");
  if (!is_alone()) std::ranges::for_each(parameters, require_exchangeable);
  set_parameters(parameters);
  try {
    choose_members();
    if (!is_alone()) runtime_.engine().check_plan(describe_tensors(), plan_options());
  } catch (const Error&) {
    members_.clear();  // They have no hooks yet.
    attached_.clear();
    throw;
  }
  take_parameters_over();
}

void EngineExchange::set_parameters(const NamedTensors& parameters) {
  std::unordered_map<const c10::TensorImpl*, Member*> members;
  for (const auto& member : known_) members[member->parameter.tensor.unsafeGetTensorImpl()] = member.get();
  Members attached;
  for (const NamedTensor& parameter : parameters) {
    Member*& member = members[parameter.tensor.unsafeGetTensorImpl()];
    if (member == nullptr) {
      member = known_.emplace_back(std::make_unique<Member>(Member{.parameter = parameter})).get();
    }
    if (std::ranges::find(attached, member) == attached.end()) attached.push_back(member);
  }
  std::ranges::reverse(attached);
  attached_ = std::move(attached);
}

void EngineExchange::set_backward_passes_per_step(int passes) {
  if (passes < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("backward_passes_per_step must be at least 1, not {}", passes));
  }
  options_.backward_passes_per_step = passes;
}

EngineExchange::Members EngineExchange::trainable() const {
  Members result;
  std::ranges::copy_if(attached_, std::back_inserter(result),
                       [](const Member* member) { return member->parameter.tensor.requires_grad(); });
  return result;
}

/// Those that are trainable now.
void EngineExchange::choose_members() {
  for (Member* member : members_) member->index.reset();
  members_ = trainable();
  for (std::size_t index = 0; index < members_.size(); ++index) {
    if (!is_alone()) require_exchangeable(members_[index]->parameter);
    members_[index]->index = index;
  }
  ++layouts_;
}

/// From the exchanges that have had them so far.
void EngineExchange::take_parameters_over() {
  for (Member* member : members_) {
    if (member->hooked) continue;
    const at::Tensor& parameter = member->parameter.tensor;
    if (const Hook* hook = Hook::on(parameter)) {
      EngineExchange& older = hook->exchange();
      older.retired_ = true;
      older.take_hooks_off();
    }
    if (is_alone()) continue;
    auto& place = torch::autograd::impl::post_acc_grad_hooks(parameter);
    place = std::make_unique<Hook>(*this, *member, std::move(place));
    member->hooked = true;
  }
}

std::vector<engine::PlanTensor> EngineExchange::describe_tensors() const {
  std::vector<engine::PlanTensor> tensors;
  for (const Member* member : members_) {
    const at::Tensor& parameter = member->parameter.tensor;
    tensors.push_back({layout_name(member->parameter), data_type_of(parameter), shape_of(parameter)});
  }
  return tensors;
}

engine::PlanOptions EngineExchange::plan_options() const {
  engine::PlanOptions options;
  options.name = number_ == 1 ? "gradients" : fmt::format("gradients.{}", number_);
  if (layouts_ > 1) options.name += fmt::format(".layout.{}", layouts_);
  options.operation = options_.operation;
  options.wire = options_.wire;
  options.error_feedback = options_.error_feedback;
  for (const Member* member : arrived_) {
    if (member->index) options.ready_order.push_back(*member->index);
  }
  return options;
}

void EngineExchange::take_gradient(Member& member) {
  has_new_gradients_ = true;
  if (!member.index) {  // synchronize() takes care of it, however many passes have brought it.
    if (std::ranges::find(arrived_, &member) == arrived_.end()) arrived_.push_back(&member);
    return;
  }
  if (member.complete) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the gradient of '{}' was computed more than backward_passes_per_step = {} times before step() or "
                    "synchronize(). To accumulate over several calls of backward(), set "
                    "ExchangeOptions::backward_passes_per_step; where another optimizer's loss brought this gradient "
                    "(a GAN's), call requires_grad_(false) on the parameter before its backward(); to leave out a "
                    "step, call synchronize(), then zero_grad(), on every rank",
                    member.parameter.name, options_.backward_passes_per_step));
  }
  if (++member.passes >= options_.backward_passes_per_step) complete(member);
}

void EngineExchange::complete(Member& member) {
  if (!member.gradient().defined()) return;  // Zeros are contributed when the step ends.
  arrived_.push_back(&member);
  ++complete_count_;
  if (plan_) contribute(member);
  member.complete = true;
  member.note_sent();
}

void EngineExchange::contribute(Member& member) {
  at::Tensor& gradient = member.gradient();
  GradientPlace& own = *member.place;
  const at::NoGradGuard no_grad;
  const bool is_sparse = gradient.layout() != at::kStrided;
  if (is_sparse || gradient.data_ptr() != own.tensor().data_ptr()) {
    own.free();
    const at::Tensor& place = own.tensor();
    const at::Tensor contribution = is_sparse ? gradient.to_dense() : gradient;
    // Autograd's own tensor is not needed any more, unless somebody differentiates through it.
    if (!gradient.requires_grad()) gradient = place;
    if (contribution.scalar_type() == place.scalar_type() && contribution.strides() == place.strides() &&
        !contribution.is_neg()) {
      return plan_->contribute(*member.index,
                               {static_cast<const std::byte*>(contribution.const_data_ptr()), contribution.nbytes()});
    }
    place.copy_(contribution);
  }
  plan_->mark_ready(*member.index);
}

/// Hands in what is complete.
void EngineExchange::make_plan() {
  plan_ = runtime_.engine().make_plan(describe_tensors(), plan_options());
  for (Member* member : members_) member->place.emplace(plan_->tensor(*member->index), member->parameter.tensor);
  for (Member* member : arrived_) {
    if (!member->complete) continue;
    contribute(*member);
    member->note_sent();
  }
}

/// The gradients that live in its arena move out.
void EngineExchange::leave_plan() {
  for (Member* member : members_) {
    at::Tensor& gradient = member->gradient();
    if (gradient.defined() && gradient.is_alias_of(member->place->tensor())) gradient = gradient.clone();
    member->place->free();  // What the program has kept of them keeps its values.
    member->place.reset();
  }
  plan_.reset();
}

void EngineExchange::zero_gradients(bool set_to_none) {
  for (const Member* member : attached_) zero_gradients_of({member->parameter.tensor}, set_to_none);
}

void EngineExchange::forget_passes() {
  for (Member* member : members_) member->passes = 0;
}

void EngineExchange::synchronize() {
  if (attached_.empty()) throw Error(ErrorCode::kInvalidArgument, "attach the parameters before the first step");
  if (retired_) {
    throw Error(ErrorCode::kInvalidArgument,
                "a newer DistributedOptimizer exchanges the gradients of these parameters now: use that one");
  }
  if (is_alone()) return;
  const auto changed = std::ranges::find_if(members_, &Member::changed_since_sent);
  const std::string changed_name = changed == members_.end() ? "" : (*changed)->parameter.name;
  if (plan_) {
    reduce(members_);
    if (trainable() != members_) reduce_late_ones();
  } else {
    if (trainable() != members_) {
      choose_members();
      take_parameters_over();
    }
    if (!members_.empty()) {
      make_plan();
      reduce(members_);
    }
  }
  arrived_.clear();
  has_new_gradients_ = false;
  if (!changed_name.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the gradient of '{}' was changed between backward() and step(), while it was being "
                            "exchanged; this step's gradients are of no use: call zero_grad() and compute them again. "
                            "To change gradients (clipping, unscaling), call synchronize() first",
                            changed_name));
  }
}

/// Ends the plan's step, which brings the gradients of `results`; the others' are zeros.
void EngineExchange::reduce(const Members& results) {
  for (Member* member : results) {
    // Put there by somebody else than backward(), or by fewer passes than usual.
    if (!member->complete && member->parameter.tensor.requires_grad()) complete(*member);
  }
  for (Member* member : members_) {
    if (!member->complete) member->place->free();  // Zeros will stand there.
  }
  plan_->finish_step();
  complete_count_ = 0;
  for (Member* member : members_) member->begin_step();
  for (const Member* member : results) {
    if (member->parameter.tensor.requires_grad()) member->gradient() = member->place->tensor();
  }
}

/// Other parameters are trainable than before: a new plan is made, and those that were not in the old one are exchanged
/// through it now.
void EngineExchange::reduce_late_ones() {
  const Members before = members_;
  leave_plan();
  choose_members();
  take_parameters_over();
  if (members_.empty()) return;
  make_plan();
  Members late;
  std::ranges::copy_if(members_, std::back_inserter(late),
                       [&](Member* member) { return std::ranges::find(before, member) == before.end(); });
  if (!late.empty()) reduce(late);
}

void EngineExchange::broadcast(const NamedTensors& tensors) {
  if (is_alone()) return;
  // What is wrong with one of them is found before anything is submitted.
  std::ranges::for_each(tensors, require_exchangeable);
  std::vector<at::Tensor> contiguous;
  for (const NamedTensor& tensor : tensors) contiguous.push_back(tensor.tensor.detach().contiguous().resolve_neg());
  std::vector<engine::Handle> handles;
  std::exception_ptr failure;
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      engine::Request request;
      request.name = fmt::format("broadcast.{}.{}.{}", number_, calls_, tensors[i].name);
      request.signature = {.kind = engine::OperationKind::kBroadcast,
                           .type = data_type_of(contiguous[i]),
                           .shape = shape_of(contiguous[i])};
      request.input = memory_of(contiguous[i]);
      request.output = memory_of(contiguous[i]);
      request.transient = true;
      handles.push_back(runtime_.engine().submit(std::move(request)));
    }
  } catch (const Error&) {
    failure = std::current_exception();
  }
  ++calls_;
  // All are waited for before one may throw: until then the engine may write to the tensors.
  for (const engine::Handle& handle : handles) {
    try {
      handle.wait();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor target = tensors[i].tensor.detach();
    if (contiguous[i].data_ptr() != target.data_ptr() || target.is_neg()) target.copy_(contiguous[i]);
  }
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
