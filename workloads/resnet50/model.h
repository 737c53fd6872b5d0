#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "gyre/train/tensors.h"

namespace gyre::resnet50 {

/// Where the first block of a stage halves the image.
enum class Version {
  kV1,   ///< In its first 1x1 convolution: He et al., arXiv 1512.03385.
  kV15,  ///< In its 3x3 convolution, as torchvision and Goyal et al. have it: more accurate, a little slower.
};

struct NetworkOptions {
  int depth = 50;  ///< 50, 101 or 152; 26 and 14 (two blocks a stage, and one) for tests.
  Version version = Version::kV15;
  std::int64_t classes = 1000;
};

/// Error(kInvalidArgument) where there is no such network.
void check_network(const NetworkOptions& options);

/// Error(kInvalidArgument) where batch normalisation would have one value per channel, whose variance is zero: one
/// image per rank, of which the last stage leaves one pixel.
void check_batch(std::uint64_t batch_size, std::int64_t image_size);

/// ResNet of bottleneck blocks, with torchvision's names: conv1, bn1, layer1.0.conv1, …, layer1.0.downsample.0, …, fc.
/// ResNet-50 with 1000 classes has 25,557,032 parameters in 161 tensors. First weights: convolutions from He's normal
/// distribution (fan out), fc from N(0, 0.01), the last batch normalisation of each block with scale 0 (Goyal et al.,
/// section 5.1), each tensor from its own stream of the seed.
class Network {
 public:
  Network(const NetworkOptions& options, std::uint64_t seed);

  const train::NamedTensors& parameters() const { return parameters_; }
  /// Running means and variances of batch normalisation.
  const train::NamedTensors& buffers() const { return buffers_; }

  /// Images [n, 3, height, width], in any memory format, -> logits [n, classes]. `training`: batch normalisation uses
  /// the batch's own statistics, and adds a tenth of them to the running ones.
  at::Tensor forward(const at::Tensor& images, bool training) const;

 private:
  using Blocks = std::array<int, 4>;

  void add_convolution(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t side,
                       std::uint64_t seed);
  void add_normalisation(const std::string& name, std::int64_t channels, float scale);
  void add_block(const std::string& name, std::int64_t in, std::int64_t width, bool projection, std::uint64_t seed);
  void add(const std::string& name, at::Tensor tensor);
  const at::Tensor& tensor(const std::string& name) const { return by_name_.at(name); }
  at::Tensor convolution(const std::string& name, const at::Tensor& input, std::int64_t stride,
                         std::int64_t padding) const;
  at::Tensor normalisation(const std::string& name, const at::Tensor& input, bool training) const;
  at::Tensor block(const std::string& name, const at::Tensor& input, std::int64_t stride, bool training) const;

  NetworkOptions options_;
  Blocks blocks_;
  train::NamedTensors parameters_;
  train::NamedTensors buffers_;
  std::map<std::string, at::Tensor> by_name_;
};

}  // namespace gyre::resnet50
