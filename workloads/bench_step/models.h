#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::bench_step {

/// A network of python/gyre/bench/models.py, parameter for parameter. `image_size`: pixels per side.
/// Error(kInvalidArgument) for an unknown name: resnet50, resnet101, vgg16, cifar10 and cosmoflow are known.
torch::nn::Sequential make_step_model(const std::string& name, std::int64_t image_size, std::int64_t outputs);

/// Of a batch for it.
std::vector<std::int64_t> input_shape(const std::string& name, std::int64_t batch_size, std::int64_t image_size);

}  // namespace gyre::bench_step
