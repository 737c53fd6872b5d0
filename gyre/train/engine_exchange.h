#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gyre/engine/runtime.h"
#include "gyre/train/gradient_exchange.h"
#include "gyre/train/gradient_place.h"

namespace gyre::train {

struct ExchangeOptions {
  engine::ReduceOperation operation = engine::ReduceOperation::kAverage;
  engine::WireFormat wire = engine::WireFormat::kNative;  ///< How float32 gradients travel between hosts.
  bool error_feedback = false;                            ///< See engine::PlanOptions.
};

/// Exchanges gradients through the engine while backward still runs: a hook on each parameter copies its fresh
/// gradient, still in cache, to the parameter's place in the arena, makes that place the parameter's gradient, and
/// hands it in; buckets that are full are reduced meanwhile. Nothing is copied out, and gradients that already live
/// there (zero_gradients(false)) are not copied in either. The first step is exchanged when it ends; the order in which
/// its gradients came, on the first rank that had most of them, is the one in which the plan is then laid out, for
/// good.
///
/// A tensor that somebody keeps of a gradient, and any that shares its memory, keeps its values after
/// zero_gradients(true), as in a program without exchange.
///
/// The parameters must be leaves on the CPU, contiguous, and keep their shape. Each belongs to one exchange, the newest
/// that was attached to it. Hooks that others have set on them before go on being called, before ours. The runtime must
/// outlive it; gradients that live in the arena must not be used after it is destroyed.
class EngineExchange final : public GradientExchange {
 public:
  explicit EngineExchange(engine::Runtime& runtime, const ExchangeOptions& options = {});
  /// Takes its hooks off the parameters, and their gradients out of the arena.
  ~EngineExchange() override;
  EngineExchange(const EngineExchange&) = delete;
  EngineExchange& operator=(const EngineExchange&) = delete;

  int rank() const override { return runtime_.rank(); }
  int size() const override { return runtime_.size(); }
  /// Error(kMismatch) on every rank when they attach different parameters. An older exchange of any of them exchanges
  /// nothing from then on: its synchronize() is an Error(kInvalidArgument).
  void attach(const NamedTensors& parameters) override;
  void zero_gradients() override { zero_gradients(true); }
  /// `set_to_none`: gradients become undefined; otherwise they are filled with zeros where they are.
  void zero_gradients(bool set_to_none);
  void synchronize() override;
  /// Whether backward() has computed a gradient since the last synchronize().
  bool has_new_gradients() const { return has_new_gradients_; }
  void broadcast(const NamedTensors& tensors) override;
  void sum(std::span<double> values) override;
  void note_wait(std::string_view row, const data::BatchWait& wait) override;

 private:
  class Hook;
  void take_hooks_off();
  void take_gradient(std::size_t index);
  /// Copies a complete gradient to its place, unless it lies there, and hands it in.
  void contribute(std::size_t index);
  void make_plan();
  std::vector<engine::PlanTensor> describe_tensors() const;
  engine::PlanOptions plan_options() const;

  engine::Runtime& runtime_;
  const ExchangeOptions options_;
  NamedTensors parameters_;            // In the order in which they were attached reversed: roughly that of backward.
  std::vector<GradientPlace> places_;  // Of the parameters in the arena; filled with the plan.
  std::vector<std::size_t> arrived_;  // In the first step: the parameters whose gradients are complete, in their order.
  std::unique_ptr<engine::Plan> plan_;  // Made when the first step ends.
  const std::uint64_t number_;          // Names the plan, and with calls_ the operations of broadcast() and sum().
  std::uint64_t calls_ = 0;
  bool has_new_gradients_ = false;
  bool retired_ = false;  // A newer exchange has a parameter of ours.
};

/// The engine's name for a tensor's type. Error(kUnsupported) for those it does not know.
engine::DataType data_type_of(const at::Tensor& tensor);

}  // namespace gyre::train
