#pragma once

#include <torch/optim/optimizer.h>

#include <concepts>
#include <map>
#include <string>
#include <vector>

#include "gyre/train/engine_exchange.h"

namespace gyre::train {

template <typename Module>
concept HasNamedTensors = requires(const Module& module) {
  module.named_parameters();
  module.named_buffers();
};

/// Any libtorch optimizer, made to step on gradients averaged over all ranks:
///
///     auto runtime = gyre::engine::Runtime::start_from_environment();
///     torch::optim::SGD sgd(model->parameters(), 0.1 * runtime->size());
///     gyre::train::DistributedOptimizer optimizer(sgd, *model, *runtime);
///     optimizer.broadcast_parameters();
///     for (…) { optimizer.zero_grad(); loss(model, batch).backward(); optimizer.step(); }
///
/// It behaves as gyre.torch.DistributedOptimizer does in Python; the table in docs/guide/cpp.md says how, and where the
/// two differ. Parameters that are wrapped again belong to the newer one; the older one refuses to step. Not
/// thread-safe. The optimizer and the runtime must outlive it.
class DistributedOptimizer {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;

  /// Collective. Exchanges the gradients of the optimizer's parameters, those that it gets later among them, in the
  /// order of its groups; they are alike on all ranks. `tensors`: what broadcast_parameters() sends, with the names
  /// that messages use: all parameters of the optimizer, and whatever else there is (buffers). Empty: the parameters,
  /// without names. Error(kInvalidArgument) where it leaves out a parameter or repeats a name; Error(kMismatch) where
  /// ranks have different parameters.
  DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& tensors, engine::Runtime& runtime,
                       const ExchangeOptions& options = {});
  /// With the parameters and buffers of a torch::nn::Module, some of whose parameters may be another optimizer's.
  template <HasNamedTensors Module>
  DistributedOptimizer(torch::optim::Optimizer& optimizer, const Module& module, engine::Runtime& runtime,
                       const ExchangeOptions& options = {})
      : DistributedOptimizer(optimizer, named_tensors(module), runtime, options) {}

  /// Rank 0's become every rank's: the tensors' values, and the optimizer's state and options (see
  /// broadcast_optimizer_state), so that a run can be resumed on rank 0 alone. Collective. Error(kMismatch) on every
  /// rank, before anything has changed, where the optimizers differ.
  void broadcast_parameters();

  /// From the next step on; see ExchangeOptions.
  void set_backward_passes_per_step(int passes) { exchange_.set_backward_passes_per_step(passes); }

  /// Of the optimizer's parameters. Error(kInvalidArgument) between backward() and step() or synchronize(), while
  /// gradients are exchanged.
  void zero_grad(bool set_to_none = true);

  /// Waits for the exchange; gradients are averaged afterwards. For clipping and the like before step(), or before
  /// zero_grad(), which leaves the step out. Collective. Error(kInvalidArgument) when backward() comes between the two.
  void synchronize();

  /// synchronize(), unless it was called since the last step, and the optimizer's own step. With a closure, each of its
  /// calls is followed by an exchange; LBFGS, which decides by the closure's loss, gets its average over the ranks.
  /// Returns what the optimizer's step returns.
  torch::Tensor step(const LossClosure& closure = nullptr);

 private:
  NamedTensors parameters_in_order() const;
  void follow_parameters();
  void compare_replicas();

  torch::optim::Optimizer& optimizer_;
  engine::Runtime& runtime_;
  UnequalReplicas unequal_replicas_;
  NamedTensors tensors_;  // Each name once.
  std::map<const void*, std::string> names_;
  std::vector<const void*> exchanged_;  // The optimizer's parameters when it was last asked.
  EngineExchange exchange_;
  bool compared_ = false;
  bool synchronized_ = false;
};

}  // namespace gyre::train
