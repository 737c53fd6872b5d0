#pragma once

#include <torch/optim/optimizer.h>

#include "gyre/train/engine_exchange.h"

namespace gyre::train {

/// The parameters of a torch::nn::Module by their names, in the order in which they were registered.
template <typename Module>
NamedTensors named_parameters(const Module& module) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters()) parameters.push_back({item.key(), item.value()});
  return parameters;
}

/// Any libtorch optimizer, made to step on gradients averaged over all ranks:
///
///     auto runtime = gyre::engine::Runtime::start_from_environment();
///     torch::optim::SGD sgd(model->parameters(), 0.1 * runtime->size());
///     gyre::train::DistributedOptimizer optimizer(sgd, gyre::train::named_parameters(*model), *runtime);
///     optimizer.broadcast_parameters();
///     for (…) { optimizer.zero_grad(); loss(model, batch).backward(); optimizer.step(); }
///
/// Parameters that are wrapped again belong to the newer one; the older one refuses to step. Not thread-safe. The
/// optimizer and the runtime must outlive it.
class DistributedOptimizer {
 public:
  /// `parameters`: those whose gradients are exchanged, in the order of the forward pass, alike on all ranks.
  DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters, engine::Runtime& runtime,
                       const ExchangeOptions& options = {});

  /// Rank 0's values become every rank's.
  void broadcast_parameters();

  void zero_grad(bool set_to_none = true);

  /// Waits for the exchange; gradients are averaged afterwards. For clipping and the like before step(), or before
  /// zero_grad(), which leaves the step out. Error(kInvalidArgument) when backward() comes between the two.
  void synchronize();

  /// synchronize(), unless it was called since the last step, and the optimizer's own step.
  void step();

 private:
  torch::optim::Optimizer& optimizer_;
  NamedTensors parameters_;
  EngineExchange exchange_;
  bool synchronized_ = false;
};

}  // namespace gyre::train
