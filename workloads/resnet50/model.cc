#include "workloads/resnet50/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <span>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::resnet50 {
namespace {

constexpr std::int64_t kExpansion = 4;  // A block's output has so many times its width.
constexpr std::array<std::int64_t, 4> kWidths = {64, 128, 256, 512};
constexpr double kMomentum = 0.1;  // Of the new statistics.
constexpr double kEpsilon = 1e-5;
constexpr std::int64_t kMostClasses = 1 << 20;

// Keeps the first weights' draws apart from the shuffle's, which may use the same seed.
constexpr std::uint64_t kWeightDomain = 0x7765696768740000;

std::optional<std::array<int, 4>> blocks_of(int depth) {
  switch (depth) {
    case 14: return std::array{1, 1, 1, 1};
    case 26: return std::array{2, 2, 2, 2};
    case 50: return std::array{3, 4, 6, 3};
    case 101: return std::array{3, 4, 23, 3};
    case 152: return std::array{3, 8, 36, 3};
    default: return std::nullopt;
  }
}

/// Box and Muller's transform, two values at a time.
void fill_normal(const at::Tensor& tensor, double deviation, Random& random) {
  const std::span<float> values(tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel()));
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double radius = deviation * std::sqrt(-2 * std::log(1.0 - static_cast<double>(random.uniform())));
    const double angle = 2 * std::numbers::pi * static_cast<double>(random.uniform());
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

std::string block_name(std::size_t stage, int index) { return fmt::format("layer{}.{}", stage + 1, index); }

}  // namespace

void check_network(const NetworkOptions& options) {
  if (!blocks_of(options.depth)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no ResNet-{} here; 50, 101 and 152 are possible, 14 and 26 for tests", options.depth));
  }
  if (options.classes < 2 || options.classes > kMostClasses) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} classes; 2 to {} are possible", options.classes, kMostClasses));
  }
}

void check_batch(std::uint64_t batch_size, std::int64_t image_size) {
  constexpr std::int64_t kReduction = 32;  // Along each side: a first convolution, a pooling and three stages halve it.
  if (batch_size > 1 || image_size > kReduction) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--batch-size 1 with images of {} pixels leaves batch normalisation one value per channel, "
                          "which has no variance: use a batch of at least 2, or --image-size {} or more",
                          image_size, kReduction + 1));
}

Network::Network(const NetworkOptions& options, std::uint64_t seed) : options_(options) {
  check_network(options_);
  blocks_ = *blocks_of(options_.depth);
  add_convolution("conv1", 3, kWidths[0], 7, seed);
  add_normalisation("bn1", kWidths[0], 1);
  std::int64_t channels = kWidths[0];
  for (std::size_t stage = 0; stage < kWidths.size(); ++stage) {
    for (int index = 0; index < blocks_.at(stage); ++index) {
      add_block(block_name(stage, index), channels, kWidths.at(stage), index == 0, seed);
      channels = kWidths.at(stage) * kExpansion;
    }
  }
  const at::Tensor weight = at::empty({options_.classes, channels});
  Random random(seed ^ kWeightDomain, parameters_.size());
  fill_normal(weight, 0.01, random);
  add("fc.weight", weight);
  add("fc.bias", at::zeros({options_.classes}));
}

void Network::add(const std::string& name, at::Tensor tensor) {
  tensor.requires_grad_(true);
  by_name_.emplace(name, tensor);
  parameters_.push_back({name, std::move(tensor)});
}

void Network::add_convolution(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t side,
                              std::uint64_t seed) {
  const at::Tensor weight = at::empty({out, in, side, side});
  Random random(seed ^ kWeightDomain, parameters_.size());
  fill_normal(weight, std::sqrt(2.0 / static_cast<double>(out * side * side)), random);
  add(name + ".weight", weight);
}

void Network::add_normalisation(const std::string& name, std::int64_t channels, float scale) {
  add(name + ".weight", at::full({channels}, scale));
  add(name + ".bias", at::zeros({channels}));
  for (const auto& [kind, value] : {std::pair{".running_mean", 0.0F}, std::pair{".running_var", 1.0F}}) {
    const at::Tensor buffer = at::full({channels}, value);
    by_name_.emplace(name + kind, buffer);
    buffers_.push_back({name + kind, buffer});
  }
}

void Network::add_block(const std::string& name, std::int64_t in, std::int64_t width, bool projection,
                        std::uint64_t seed) {
  add_convolution(name + ".conv1", in, width, 1, seed);
  add_normalisation(name + ".bn1", width, 1);
  add_convolution(name + ".conv2", width, width, 3, seed);
  add_normalisation(name + ".bn2", width, 1);
  add_convolution(name + ".conv3", width, width * kExpansion, 1, seed);
  add_normalisation(name + ".bn3", width * kExpansion, 0);
  if (!projection) return;
  add_convolution(name + ".downsample.0", in, width * kExpansion, 1, seed);
  add_normalisation(name + ".downsample.1", width * kExpansion, 1);
}

at::Tensor Network::convolution(const std::string& name, const at::Tensor& input, std::int64_t stride,
                                std::int64_t padding) const {
  return at::conv2d(input, tensor(name + ".weight"), {}, stride, at::IntArrayRef({padding, padding}));
}

at::Tensor Network::normalisation(const std::string& name, const at::Tensor& input, bool training) const {
  return at::batch_norm(input, tensor(name + ".weight"), tensor(name + ".bias"), tensor(name + ".running_mean"),
                        tensor(name + ".running_var"), training, kMomentum, kEpsilon, false);
}

at::Tensor Network::block(const std::string& name, const at::Tensor& input, std::int64_t stride, bool training) const {
  const bool first_halves = options_.version == Version::kV1;
  at::Tensor x = convolution(name + ".conv1", input, first_halves ? stride : 1, 0);
  x = at::relu(normalisation(name + ".bn1", x, training));
  x = convolution(name + ".conv2", x, first_halves ? 1 : stride, 1);
  x = at::relu(normalisation(name + ".bn2", x, training));
  x = normalisation(name + ".bn3", convolution(name + ".conv3", x, 1, 0), training);
  if (!by_name_.contains(name + ".downsample.0.weight")) return at::relu(x + input);
  const at::Tensor shortcut = convolution(name + ".downsample.0", input, stride, 0);
  return at::relu(x + normalisation(name + ".downsample.1", shortcut, training));
}

at::Tensor Network::forward(const at::Tensor& images, bool training) const {
  at::Tensor x = at::relu(normalisation("bn1", convolution("conv1", images, 2, 3), training));
  x = at::max_pool2d(x, 3, 2, 1);
  for (std::size_t stage = 0; stage < blocks_.size(); ++stage) {
    for (int index = 0; index < blocks_.at(stage); ++index) {
      x = block(block_name(stage, index), x, index == 0 && stage > 0 ? 2 : 1, training);
    }
  }
  return at::linear(x.mean({2, 3}), tensor("fc.weight"), tensor("fc.bias"));
}

}  // namespace gyre::resnet50
