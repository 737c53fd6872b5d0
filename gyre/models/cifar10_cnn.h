#pragma once

#include <cstdint>

#include "gyre/models/layer.h"

namespace gyre::models {

struct Cifar10CnnOptions {
  std::int64_t image_size = 32;  ///< Pixels along each side, at least 10.
  std::int64_t classes = 10;
};

/// The CIFAR-10 network of keras' examples/cifar10_cnn.py: images [n, 3, size, size], values 0 to 1 -> logits.
///   conv 3x3, 32, same, ReLU     896 parameters   32x32x32
///   conv 3x3, 32, ReLU         9,248              30x30x32, max pool 2, dropout .25: 15x15x32
///   conv 3x3, 64, same, ReLU  18,496              15x15x64
///   conv 3x3, 64, ReLU        36,928              13x13x64, max pool 2, dropout .25: 6x6x64
///   dense 512, ReLU        1,180,160              dropout .5
///   dense 10                   5,130              1,250,858 parameters in 12 tensors
/// For images of another size or another number of classes the dense layers have other sizes. Weights begin in Glorot's
/// uniform distribution. Error(kInvalidArgument) where there is no such network.
Layers cifar10_cnn(const Cifar10CnnOptions& options);

}  // namespace gyre::models
