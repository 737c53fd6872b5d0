#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "gyre/base/random.h"
#include "gyre/train/tensors.h"

namespace gyre::train {

inline constexpr std::int64_t kFeatures = 33;

/// Two layers, of which the second is shared, and one that nobody uses.
struct Network {
  torch::nn::Linear first{kFeatures, 17};
  torch::nn::Linear shared{17, 17};
  torch::nn::Linear unused{3, 2};

  explicit Network(std::uint64_t seed) {
    Random random(seed);
    for (const NamedTensor& parameter : parameters()) {
      const at::NoGradGuard no_grad;
      auto values = parameter.tensor.flatten();
      for (std::int64_t i = 0; i < values.numel(); ++i) values[i] = random.uniform(-0.3F, 0.3F);
    }
  }

  NamedTensors parameters() const {
    return {{"first.weight", first->weight}, {"first.bias", first->bias},       {"shared.weight", shared->weight},
            {"shared.bias", shared->bias},   {"unused.weight", unused->weight}, {"unused.bias", unused->bias}};
  }

  at::Tensor loss(int rank, int step) {
    Random random(99, static_cast<std::uint64_t>(rank * 1000 + step));
    at::Tensor input = at::empty({5, kFeatures});
    auto* values = input.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < input.numel(); ++i) values[i] = random.uniform(-1, 1);
    // Rank 1 leaves out the shared layer in odd steps: what it does not compute counts as zero.
    at::Tensor hidden = first->forward(input).tanh();
    if (rank != 1 || step % 2 == 0) hidden = shared->forward(shared->forward(hidden).tanh());
    return hidden.square().sum();
  }
};

inline std::vector<torch::Tensor> tensors_of(const Network& network) {
  std::vector<torch::Tensor> tensors;
  for (const NamedTensor& parameter : network.parameters()) tensors.push_back(parameter.tensor);
  return tensors;
}

}  // namespace gyre::train
