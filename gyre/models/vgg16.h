#pragma once

#include <cstdint>

#include "gyre/models/layer.h"

namespace gyre::models {

struct Vgg16Options {
  std::int64_t image_size =
      224;  ///< Pixels along each side, at least 32; the first dense layer's size follows from it.
  std::int64_t classes = 1000;
};

/// VGG's configuration D (Simonyan and Zisserman, arXiv 1409.1556): images [n, 3, size, size] -> logits [n, classes].
/// With the defaults 138,357,544 parameters in 32 tensors. Weights begin as ResNet's. Error(kInvalidArgument) where
/// there is no such network.
Layers vgg16(const Vgg16Options& options);

}  // namespace gyre::models
