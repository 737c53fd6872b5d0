#include "gyre/train/distributed_optimizer.h"

#include "gyre/base/error.h"

namespace gyre::train {

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                           engine::Runtime& runtime, const ExchangeOptions& options)
    : optimizer_(optimizer), parameters_(parameters), exchange_(runtime, options) {
  exchange_.attach(parameters_);
}

void DistributedOptimizer::broadcast_parameters() { exchange_.broadcast(parameters_); }

void DistributedOptimizer::zero_grad(bool set_to_none) {
  exchange_.zero_gradients(set_to_none);
  synchronized_ = false;  // What was averaged without a step is thrown away.
}

void DistributedOptimizer::synchronize() {
  if (synchronized_ && exchange_.has_new_gradients()) {
    throw Error(ErrorCode::kInvalidArgument,
                "backward() has added to gradients that synchronize() had averaged already: call step() or zero_grad() "
                "between synchronize() and the next backward()");
  }
  if (synchronized_) return;
  exchange_.synchronize();
  synchronized_ = true;
}

void DistributedOptimizer::step() {
  synchronize();
  optimizer_.step();
  synchronized_ = false;
}

}  // namespace gyre::train
