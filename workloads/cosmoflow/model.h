#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gyre/train/tensors.h"
#include "workloads/training/dropout.h"

namespace gyre::cosmoflow {

/// The network's sizes. The defaults are MLPerf HPC's of version 1.0; version 0.7 has kernel_size 2.
struct NetworkOptions {
  std::int64_t size = 128;  ///< Voxels along each edge of a volume: divisible by 2^convolutions.
  std::int64_t channels = 4;
  std::int64_t convolutions = 5;
  std::int64_t conv_size = 32;  ///< Channels of the first convolution; each further one has twice as many.
  std::int64_t kernel_size = 3;
  std::int64_t fc1_size = 128;  ///< Multiples of 4, where there is dropout.
  std::int64_t fc2_size = 64;
  std::int64_t targets = 4;
  double dropout = 0.5;  ///< After each of the two hidden dense layers, in steps of 1/256; below 1.
};

/// Error(kInvalidArgument) where no network has these sizes.
void check_network(const NetworkOptions& options);

/// The network of the CosmoFlow benchmark (mlcommons/hpc, cosmoflow/models/cosmoflow.py): convolutions with "same"
/// padding, LeakyReLU of slope 0.3 and max pooling by 2, then dense fc1, fc2 and targets, of which tanh times 1.2 is
/// the answer. With the defaults 8,907,556 parameters in 16 tensors; with kernel_size 2 5,597,604.
class Network {
 public:
  /// Weights are drawn from Glorot's uniform distribution, each tensor from its own stream of `seed`; biases are zero.
  Network(const NetworkOptions& options, std::uint64_t seed);

  /// conv1.weight, conv1.bias, …, fc1, fc2, out.
  const train::NamedTensors& parameters() const { return parameters_; }

  /// Volumes [n, channels, size, size, size], in any memory format, -> [n, targets] between -1.2 and 1.2. Dropout only
  /// with a key.
  at::Tensor forward(const at::Tensor& volumes, const training::DropoutKey* dropout) const;

 private:
  const at::Tensor& weight(std::int64_t layer) const { return parameters_[static_cast<std::size_t>(2 * layer)].tensor; }
  const at::Tensor& bias(std::int64_t layer) const {
    return parameters_[static_cast<std::size_t>(2 * layer + 1)].tensor;
  }
  at::Tensor convolution(const at::Tensor& input, std::int64_t layer) const;

  NetworkOptions options_;
  train::NamedTensors parameters_;
};

}  // namespace gyre::cosmoflow
