#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string>

#include "gyre/base/random.h"
#include "gyre/train/tensors.h"
#include "workloads/training/dropout.h"

namespace gyre::cifar10 {

/// The CIFAR-10 network of keras' examples/cifar10_cnn.py:
///   conv 3x3, 32, same, ReLU     896 parameters   32x32x32
///   conv 3x3, 32, ReLU         9,248              30x30x32, max pool 2, dropout .25: 15x15x32
///   conv 3x3, 64, same, ReLU  18,496              15x15x64
///   conv 3x3, 64, ReLU        36,928              13x13x64, max pool 2, dropout .25: 6x6x64
///   dense 512, ReLU        1,180,160              dropout .5
///   dense 10                   5,130              1,250,858 parameters in all
/// For images of another size or another number of classes the dense layers have other sizes.
class Cifar10Cnn {
 public:
  /// Weights are drawn from Glorot's uniform distribution, each tensor from its own stream of `seed`; biases are zero.
  /// `image_size`: pixels along each side, at least 10.
  explicit Cifar10Cnn(std::uint64_t seed, std::int64_t image_size = 32, std::int64_t classes = 10);

  /// The twelve parameters, in the order of the table, weight before bias.
  const train::NamedTensors& parameters() const { return parameters_; }

  /// Images [n, 3, size, size], values 0 to 1 -> logits [n, classes]. Dropout only with a key.
  at::Tensor forward(const at::Tensor& images, const training::DropoutKey* dropout) const;

 private:
  const at::Tensor& weight(std::size_t layer) const { return parameters_[2 * layer].tensor; }
  const at::Tensor& bias(std::size_t layer) const { return parameters_[2 * layer + 1].tensor; }
  at::Tensor convolution(const at::Tensor& input, std::size_t layer, std::int64_t padding) const {
    return at::relu(at::conv2d(input, weight(layer), bias(layer), 1, padding));
  }

  train::NamedTensors parameters_;
};

namespace internal {

struct Layer {
  const char* name;
  std::array<std::int64_t, 4> shape;  // Dense layers: {out, in, 1, 1}.
};

/// Along each side behind the last pooling: two convolutions take two pixels each, and each pooling halves.
inline std::int64_t pooled_size(std::int64_t image_size) { return ((image_size - 2) / 2 - 2) / 2; }

inline std::array<Layer, 6> layers(std::int64_t image_size, std::int64_t classes) {
  const std::int64_t side = pooled_size(image_size);
  return {{{"conv1", {32, 3, 3, 3}},
           {"conv2", {32, 32, 3, 3}},
           {"conv3", {64, 32, 3, 3}},
           {"conv4", {64, 64, 3, 3}},
           {"dense1", {512, 64 * side * side, 1, 1}},
           {"dense2", {classes, 512, 1, 1}}}};
}

// Keeps the first weights' draws apart from those of the shuffle and of dropout, which may use the same seed.
inline constexpr std::uint64_t kWeightDomain = 0x7765696768740000;

/// The mask in the memory order of `activations`: pixel by pixel, all channels of a pixel together.
inline at::Tensor spatial_dropout_mask(const at::Tensor& activations, unsigned zero_of_256, std::uint64_t layer,
                                       const training::DropoutKey& key) {
  const std::int64_t channels = activations.size(1);
  const std::int64_t height = activations.size(2);
  const std::int64_t width = activations.size(3);
  const at::Tensor flat =
      training::dropout_mask(activations.size(0), channels * height * width, zero_of_256, layer, key);
  return flat.view({activations.size(0), height, width, channels}).permute({0, 3, 1, 2});
}

}  // namespace internal

inline Cifar10Cnn::Cifar10Cnn(std::uint64_t seed, std::int64_t image_size, std::int64_t classes) {
  const std::array<internal::Layer, 6> layers = internal::layers(image_size, classes);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const auto& [name, shape] = layers.at(layer);
    const bool dense = shape[2] == 1;
    const at::Tensor weight = at::empty(at::IntArrayRef(shape.data(), dense ? 2 : 4));
    Random random(seed ^ internal::kWeightDomain, layer);
    train::glorot_uniform(weight, random);
    parameters_.push_back({std::string(name) + ".weight", weight.requires_grad_(true)});
    parameters_.push_back({std::string(name) + ".bias", at::zeros({shape[0]}).requires_grad_(true)});
  }
}

inline at::Tensor Cifar10Cnn::forward(const at::Tensor& images, const training::DropoutKey* dropout) const {
  constexpr unsigned kQuarter = 64;
  constexpr unsigned kHalf = 128;
  at::Tensor x = convolution(images, 0, 1);
  x = at::max_pool2d(convolution(x, 1, 0), 2);
  if (dropout != nullptr) x = x * internal::spatial_dropout_mask(x, kQuarter, 0, *dropout);
  x = convolution(x, 2, 1);
  x = at::max_pool2d(convolution(x, 3, 0), 2);
  if (dropout != nullptr) x = x * internal::spatial_dropout_mask(x, kQuarter, 1, *dropout);
  x = at::relu(at::linear(x.flatten(1), weight(4), bias(4)));
  if (dropout != nullptr) x = x * training::dropout_mask(x.size(0), x.size(1), kHalf, 2, *dropout);
  return at::linear(x, weight(5), bias(5));
}

}  // namespace gyre::cifar10
