#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/engine/runtime.h"
#include "gyre/train/gradient_exchange.h"
#include "gyre/train/gradient_place.h"

namespace gyre::train {

/// What to do about parameters that differ between the ranks before the first step.
enum class UnequalReplicas {
  kAllow,
  kWarn,   ///< Rank 0 logs a warning.
  kError,  ///< Error(kMismatch) on every rank.
};

struct ExchangeOptions {
  engine::ReduceOperation operation = engine::ReduceOperation::kAverage;
  engine::WireFormat wire = engine::WireFormat::kNative;  ///< How float32 gradients travel between hosts.
  bool error_feedback = false;                            ///< See engine::PlanOptions.
  /// Gradients of so many calls of backward() are added up on each rank before they are exchanged.
  int backward_passes_per_step = 1;
  /// Read by DistributedOptimizer. If the ranks have different settings, the most lenient counts.
  UnequalReplicas unequal_replicas = UnequalReplicas::kWarn;
};

/// Exchanges gradients through the engine while backward still runs: a hook on each parameter copies its complete
/// gradient, still in cache, to the parameter's place in the arena, makes that place the parameter's gradient, and
/// hands it in; buckets that are full are reduced meanwhile. Nothing is copied out, and gradients that already live
/// there (zero_gradients(false)) are not copied in either. The first step is exchanged when it ends; the order in which
/// its gradients came, on the first rank that had most of them, is the one in which the plan is then laid out. With one
/// rank there is nothing to exchange: gradients stay where autograd puts them.
///
/// Exchanged are the parameters that require a gradient in that step; a change of which they are takes effect at the
/// end of the step and must be the same on all ranks. A parameter that is attached several times, as a module's tied
/// weights are, is exchanged once.
///
/// A tensor that somebody keeps of a gradient, and any that shares its memory, keeps its values after
/// zero_gradients(true), as in a program without exchange.
///
/// The parameters must be leaves on the CPU, and keep their shape. Each belongs to one exchange, the newest that was
/// attached to it. Hooks that others have set on them before go on being called, before ours. The runtime must outlive
/// it; gradients that live in the arena must not be used after it is destroyed.
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
  /// Between two steps, on every rank, after attach(): other parameters, those that have been exchanged so far among
  /// them. Takes effect at the end of the next step.
  void set_parameters(const NamedTensors& parameters);
  /// From the next step on.
  void set_backward_passes_per_step(int passes);
  void zero_gradients() override { zero_gradients(true); }
  void zero_gradients(bool set_to_none);  ///< See zero_gradients_of().
  /// The gradients that have been accumulated so far were discarded.
  void forget_passes();
  /// Error(kInvalidArgument), after the exchange, if a gradient was written to (in a way that autograd counts) or
  /// replaced since it was complete.
  void synchronize() override;
  /// Whether backward() has computed a gradient since the last synchronize(). Always false with one rank.
  bool has_new_gradients() const { return has_new_gradients_; }
  /// Whether gradients of this step are being exchanged.
  bool is_under_way() const { return complete_count_ > 0; }
  /// Any layout; tensors that are not contiguous are copied.
  void broadcast(const NamedTensors& tensors) override;
  void sum(std::span<double> values) override;
  void note_wait(std::string_view row, const data::BatchWait& wait) override;

 private:
  class Hook;
  struct Member;
  /// In the order of the plan.
  using Members = std::vector<Member*>;

  bool is_alone() const { return runtime_.size() == 1; }
  void take_hooks_off();
  void take_parameters_over();
  Members trainable() const;
  void choose_members();
  void take_gradient(Member& member);
  void complete(Member& member);
  /// Copies a complete gradient to its place, unless it lies there, and hands it in.
  void contribute(Member& member);
  void make_plan();
  void leave_plan();
  void reduce(const Members& results);
  void reduce_late_ones();
  std::vector<engine::PlanTensor> describe_tensors() const;
  engine::PlanOptions plan_options() const;

  engine::Runtime& runtime_;
  ExchangeOptions options_;
  std::vector<std::unique_ptr<Member>> known_;  // All that were ever attached: hooks refer to them.
  Members attached_;                            // In their order reversed: roughly that of backward.
  Members members_;                             // Of the plan: those of attached_ that were trainable.
  std::vector<Member*> arrived_;  // Since the last plan: those whose gradients are complete, in their order.
  std::size_t complete_count_ = 0;
  std::unique_ptr<engine::Plan> plan_;  // Made when the first step ends.
  std::uint64_t layouts_ = 0;
  const std::uint64_t number_;  // Names the plan, and with calls_ the operations of broadcast() and sum().
  std::uint64_t calls_ = 0;
  bool has_new_gradients_ = false;
  bool retired_ = false;  // A newer exchange has a parameter of ours.
};

/// `set_to_none`: gradients become undefined; otherwise they are filled with zeros where they are.
void zero_gradients_of(const std::vector<at::Tensor>& parameters, bool set_to_none);

/// The engine's name for a tensor's type. Error(kUnsupported) for those it does not know.
engine::DataType data_type_of(const at::Tensor& tensor);

}  // namespace gyre::train
