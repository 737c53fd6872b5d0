#include "gyre/models/resnet.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "gyre/models/internal/requirements.h"

namespace gyre::models {
namespace {

constexpr std::int64_t kExpansion = 4;  // A block's output has so many times its width.
constexpr std::array<std::int64_t, 4> kWidths = {64, 128, 256, 512};

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

/// Adds layers, and counts the parameters before each: that is a weight's stream.
class Builder {
 public:
  explicit Builder(ResnetVersion version) : version_(version) {}

  Layer convolution(std::string name, std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                    std::int64_t stride) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(outputs * kernel * kernel));
    return {std::move(name), Convolution{.inputs = inputs,
                                         .outputs = outputs,
                                         .kernel = kernel,
                                         .stride = stride,
                                         .padding_before = kernel / 2,
                                         .padding_after = kernel / 2,
                                         .bias = false,
                                         .first = normal(deviation, 1)}};
  }

  Layer normalisation(std::string name, std::int64_t channels, float scale) {
    parameters_ += 2;
    return {std::move(name), BatchNormalisation{.channels = channels, .first_scale = scale}};
  }

  Layer linear(std::string name, std::int64_t inputs, std::int64_t outputs) {
    return {std::move(name), Linear{.inputs = inputs, .outputs = outputs, .first = normal(0.01, 2)}};
  }

  /// The first block of a stage has a projection as its shortcut.
  Layer block(std::string name, std::int64_t inputs, std::int64_t width, std::int64_t stride, bool projection) {
    const std::int64_t outputs = width * kExpansion;
    const bool first_halves = version_ == ResnetVersion::kV1;
    Residual block;
    block.layers.push_back(convolution("conv1", inputs, width, 1, first_halves ? stride : 1));
    block.layers.push_back(normalisation("bn1", width, 1));
    block.layers.push_back({"relu1", Relu{}});
    block.layers.push_back(convolution("conv2", width, width, 3, first_halves ? 1 : stride));
    block.layers.push_back(normalisation("bn2", width, 1));
    block.layers.push_back({"relu2", Relu{}});
    block.layers.push_back(convolution("conv3", width, outputs, 1, 1));
    block.layers.push_back(normalisation("bn3", outputs, 0));
    if (projection) {
      block.shortcut.push_back(convolution("0", inputs, outputs, 1, stride));
      block.shortcut.push_back(normalisation("1", outputs, 1));
    }
    return {std::move(name), std::move(block)};
  }

 private:
  FirstWeights normal(double deviation, std::uint64_t parameters) {
    const std::uint64_t stream = parameters_;
    parameters_ += parameters;
    return {.distribution = FirstWeights::Distribution::kNormal, .deviation = deviation, .stream = stream};
  }

  const ResnetVersion version_;
  std::uint64_t parameters_ = 0;
};

}  // namespace

Layers resnet(const ResnetOptions& options) {
  const std::optional<std::array<int, 4>> blocks = blocks_of(options.depth);
  internal::require(
      blocks.has_value(),
      fmt::format("there is no ResNet-{} here; 50, 101 and 152 are possible, 14 and 26 for tests", options.depth));
  internal::require(options.classes >= 2 && options.classes <= 1 << 20,
                    fmt::format("{} classes; 2 to {} are possible", options.classes, 1 << 20));
  Builder builder(options.version);
  Layers layers;
  layers.push_back(builder.convolution("conv1", 3, kWidths[0], 7, 2));
  layers.push_back(builder.normalisation("bn1", kWidths[0], 1));
  layers.push_back({"relu", Relu{}});
  layers.push_back({"maxpool", MaxPooling{.kernel = 3, .stride = 2, .padding = 1}});
  std::int64_t channels = kWidths[0];
  for (std::size_t stage = 0; stage < kWidths.size(); ++stage) {
    Sequence sequence;
    for (int index = 0; index < blocks->at(stage); ++index) {
      const std::int64_t stride = index == 0 && stage > 0 ? 2 : 1;
      sequence.layers.push_back(builder.block(std::to_string(index), channels, kWidths.at(stage), stride, index == 0));
      channels = kWidths.at(stage) * kExpansion;
    }
    layers.push_back({fmt::format("layer{}", stage + 1), std::move(sequence)});
  }
  layers.push_back({"avgpool", Average{}});
  layers.push_back({"flatten", Flatten{}});
  layers.push_back(builder.linear("fc", channels, options.classes));
  return layers;
}

}  // namespace gyre::models
