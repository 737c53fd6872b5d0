#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/models/dropout.h"
#include "gyre/models/layer.h"

namespace gyre::models {

namespace internal {
class Part;
}

/// A network of layers as a torch::nn::Module, with the parameters and buffers of tensors_of(layers):
///
///     gyre::models::Network network(gyre::models::resnet({.classes = 10}), /*seed=*/1);
///     torch::optim::SGD sgd(network.parameters(), 0.1);
///     network.train();
///     loss(network.forward(images), labels).backward();
///
/// CPU, float32 at first; to() moves it. Not thread-safe.
class Network : public torch::nn::Module {
 public:
  /// The parameters' first values follow from `seed`: see fill_first_values().
  Network(const Layers& layers, std::uint64_t seed);

  /// `input` in any memory format. In training mode, in which a network begins, batch normalisation uses the batch's
  /// own statistics and adds a tenth of them to the running ones, and dropout draws from `dropout`, or from libtorch's
  /// generator without one. In evaluation mode (eval()) neither happens.
  at::Tensor forward(const at::Tensor& input, const DropoutKey* dropout = nullptr);

 private:
  std::vector<std::shared_ptr<internal::Part>> parts_;
};

}  // namespace gyre::models
