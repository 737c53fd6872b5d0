#pragma once

#include <cstdint>

#include "gyre/models/layer.h"

namespace gyre::models {

/// Where the first block of a stage halves the image.
enum class ResnetVersion {
  kV1,   ///< In its first 1x1 convolution: He et al., arXiv 1512.03385.
  kV15,  ///< In its 3x3 convolution, as torchvision and Goyal et al. have it: more accurate, a little slower.
};

struct ResnetOptions {
  int depth = 50;  ///< 50, 101 or 152; 26 and 14 (two blocks a stage, and one) for tests.
  ResnetVersion version = ResnetVersion::kV15;
  std::int64_t classes = 1000;
};

/// ResNet of bottleneck blocks, with torchvision's names: conv1, bn1, layer1.0.conv1, …, layer1.0.downsample.0, …, fc.
/// Images [n, 3, height, width] -> logits [n, classes]. ResNet-50 with 1000 classes has 25,557,032 parameters in 161
/// tensors. First weights: convolutions from He's normal distribution (fan out), fc from N(0, 0.01), the last batch
/// normalisation of each block with scale 0 (Goyal et al., section 5.1). Error(kInvalidArgument) where there is no such
/// network.
Layers resnet(const ResnetOptions& options);

}  // namespace gyre::models
