#include "gyre/train/distributed_optimizer.h"

#include <utility>

namespace gyre::train {

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                           engine::Runtime& runtime, const ExchangeOptions& options)
    : optimizer_(optimizer), parameters_(parameters), exchange_(runtime, options) {
  exchange_.attach(parameters_);
}

void DistributedOptimizer::broadcast_parameters() { exchange_.broadcast(parameters_); }

void DistributedOptimizer::synchronize() {
  if (std::exchange(synchronized_, true)) return;
  exchange_.synchronize();
}

void DistributedOptimizer::step() {
  synchronize();
  optimizer_.step();
  synchronized_ = false;
}

}  // namespace gyre::train
