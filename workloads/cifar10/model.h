#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string>

#include "gyre/base/check.h"
#include "gyre/base/random.h"
#include "gyre/train/tensors.h"

namespace gyre::cifar10 {

/// Names the random choices of one rank's forward pass. A sample's dropout depends on the seed, the step and its
/// position in the global batch, so it is the same whichever rank computes it.
struct DropoutKey {
  std::uint64_t seed;
  std::uint64_t step;
  std::uint64_t first_position;  ///< In the global batch, of the first image.
};

/// The CIFAR-10 network of keras' examples/cifar10_cnn.py:
///   conv 3x3, 32, same, ReLU     896 parameters   32x32x32
///   conv 3x3, 32, ReLU         9,248              30x30x32, max pool 2, dropout .25: 15x15x32
///   conv 3x3, 64, same, ReLU  18,496              15x15x64
///   conv 3x3, 64, ReLU        36,928              13x13x64, max pool 2, dropout .25: 6x6x64
///   dense 512, ReLU        1,180,160              dropout .5
///   dense 10                   5,130              1,250,858 parameters in all
class Cifar10Cnn {
 public:
  /// Weights are drawn from Glorot's uniform distribution, each tensor from its own stream of `seed`; biases are zero.
  explicit Cifar10Cnn(std::uint64_t seed);

  /// The twelve parameters, in the order of the table, weight before bias.
  const train::NamedTensors& parameters() const { return parameters_; }

  /// Images [n, 3, 32, 32], values 0 to 1 -> logits [n, 10]. Dropout only with a key.
  at::Tensor forward(const at::Tensor& images, const DropoutKey* dropout) const;

 private:
  const at::Tensor& weight(std::size_t layer) const { return parameters_[2 * layer].tensor; }
  const at::Tensor& bias(std::size_t layer) const { return parameters_[2 * layer + 1].tensor; }
  at::Tensor convolution(const at::Tensor& input, std::size_t layer, std::int64_t padding) const {
    return at::relu(at::conv2d(input, weight(layer), bias(layer), 1, padding));
  }

  train::NamedTensors parameters_;
};

/// Positions in a global batch must be below this, so that they fit into the streams of the generator.
inline constexpr std::uint64_t kMostPositions = std::uint64_t{1} << 22;

namespace internal {

struct Layer {
  const char* name;
  std::array<std::int64_t, 4> shape;  // Dense layers: {out, in, 1, 1}.
};
inline constexpr std::array<Layer, 6> kLayers = {{{"conv1", {32, 3, 3, 3}},
                                                  {"conv2", {32, 32, 3, 3}},
                                                  {"conv3", {64, 32, 3, 3}},
                                                  {"conv4", {64, 64, 3, 3}},
                                                  {"dense1", {512, 2304, 1, 1}},
                                                  {"dense2", {10, 512, 1, 1}}}};

// Keep dropout's draws and the first weights' apart from the shuffle's, which may use the same seed.
inline constexpr std::uint64_t kWeightDomain = 0x7765696768740000;
inline constexpr std::uint64_t kDropoutDomain = 0x64726f706f757400;

/// A mask of zeros and 1 / (1 - p) for [n, values]: p = zero_of_256 / 256. Sample i draws from a stream of its own.
inline at::Tensor dropout_mask(std::int64_t samples, std::int64_t values, unsigned zero_of_256, std::uint64_t layer,
                               const DropoutKey& key) {
  GYRE_CHECK(values % 4 == 0);
  const float keep = 256.0F / static_cast<float>(256 - zero_of_256);
  const at::Tensor mask = at::empty({samples, values});
  auto* out = mask.mutable_data_ptr<float>();
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::uint64_t position = key.first_position + static_cast<std::uint64_t>(sample);
    GYRE_CHECK(position < kMostPositions);
    Random random(key.seed ^ kDropoutDomain, key.step << 24 | position << 2 | layer);
    for (std::int64_t i = 0; i < values; i += 4, out += 4) {
      const std::uint32_t bits = random.next_u32();  // One byte decides about one value.
      for (int k = 0; k < 4; ++k) out[k] = (bits >> (8 * k) & 0xffU) < zero_of_256 ? 0.0F : keep;
    }
  }
  return mask;
}

/// The mask in the memory order of `activations`: pixel by pixel, all channels of a pixel together.
inline at::Tensor spatial_dropout_mask(const at::Tensor& activations, unsigned zero_of_256, std::uint64_t layer,
                                       const DropoutKey& key) {
  const std::int64_t channels = activations.size(1);
  const std::int64_t height = activations.size(2);
  const std::int64_t width = activations.size(3);
  const at::Tensor flat = dropout_mask(activations.size(0), channels * height * width, zero_of_256, layer, key);
  return flat.view({activations.size(0), height, width, channels}).permute({0, 3, 1, 2});
}

}  // namespace internal

inline Cifar10Cnn::Cifar10Cnn(std::uint64_t seed) {
  for (std::size_t layer = 0; layer < internal::kLayers.size(); ++layer) {
    const auto& [name, shape] = internal::kLayers[layer];
    const bool dense = shape[2] == 1;
    const at::Tensor weight = at::empty(at::IntArrayRef(shape.data(), dense ? 2 : 4));
    Random random(seed ^ internal::kWeightDomain, layer);
    train::glorot_uniform(weight, random);
    parameters_.push_back({std::string(name) + ".weight", weight.requires_grad_(true)});
    parameters_.push_back({std::string(name) + ".bias", at::zeros({shape[0]}).requires_grad_(true)});
  }
}

inline at::Tensor Cifar10Cnn::forward(const at::Tensor& images, const DropoutKey* dropout) const {
  constexpr unsigned kQuarter = 64;
  constexpr unsigned kHalf = 128;
  at::Tensor x = convolution(images, 0, 1);
  x = at::max_pool2d(convolution(x, 1, 0), 2);
  if (dropout != nullptr) x = x * internal::spatial_dropout_mask(x, kQuarter, 0, *dropout);
  x = convolution(x, 2, 1);
  x = at::max_pool2d(convolution(x, 3, 0), 2);
  if (dropout != nullptr) x = x * internal::spatial_dropout_mask(x, kQuarter, 1, *dropout);
  x = at::relu(at::linear(x.flatten(1), weight(4), bias(4)));
  if (dropout != nullptr) x = x * internal::dropout_mask(x.size(0), x.size(1), kHalf, 2, *dropout);
  return at::linear(x, weight(5), bias(5));
}

}  // namespace gyre::cifar10
