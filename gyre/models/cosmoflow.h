#pragma once

#include <cstdint>

#include "gyre/models/layer.h"

namespace gyre::models {

/// The sizes of the CosmoFlow network. The defaults are those of MLPerf HPC 1.0 (mlcommons/hpc,
/// cosmoflow/configs/cosmo.yaml); version 0.7 has kernel_size 2.
struct CosmoflowOptions {
  std::int64_t size = 128;  ///< Voxels along each edge of a volume: divisible by 2^convolutions.
  std::int64_t channels = 4;
  std::int64_t convolutions = 5;
  std::int64_t conv_size = 32;  ///< Channels of the first convolution; each further one has twice as many.
  std::int64_t kernel_size = 3;
  std::int64_t fc1_size = 128;
  std::int64_t fc2_size = 64;
  std::int64_t targets = 4;
  double dropout = 0.5;  ///< After each of the two hidden dense layers, in steps of 1/256; below 1.
};

/// The network of the CosmoFlow benchmark (mlcommons/hpc, cosmoflow/models/cosmoflow.py): volumes [n, channels, size,
/// size, size] -> [n, targets] between -1.2 and 1.2. Convolutions conv1, conv2, … with "same" padding, LeakyReLU of
/// slope 0.3 and max pooling by 2, then the dense layers fc1, fc2 and out, of which tanh times 1.2 is the answer. With
/// the defaults 8,907,556 parameters in 16 tensors; with kernel_size 2 5,597,604. Weights begin in Glorot's uniform
/// distribution. Error(kInvalidArgument) where there is no such network.
Layers cosmoflow(const CosmoflowOptions& options);

}  // namespace gyre::models
