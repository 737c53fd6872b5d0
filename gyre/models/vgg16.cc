#include "gyre/models/vgg16.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "gyre/models/internal/requirements.h"

namespace gyre::models {
namespace {

constexpr unsigned kHalfOf256 = 128;
constexpr std::int64_t kDense = 4096;

FirstWeights normal(double deviation, std::uint64_t stream) {
  return {.distribution = FirstWeights::Distribution::kNormal, .deviation = deviation, .stream = stream};
}

}  // namespace

Layers vgg16(const Vgg16Options& options) {
  // Widths, and how many convolutions have each.
  constexpr std::array<std::pair<std::int64_t, int>, 5> kStages = {{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}};
  internal::require_within(options.image_size, 32, 1 << 16, "the size of the images");
  internal::require_within(options.classes, 1, 1 << 20, "the number of classes");
  Layers layers;
  std::uint64_t stream = 0;
  std::int64_t channels = 3;
  for (const auto& [width, convolutions] : kStages) {
    for (int i = 0; i < convolutions; ++i) {
      const FirstWeights first = normal(std::sqrt(2.0 / static_cast<double>(width * 9)), stream++);
      layers.push_back(
          {fmt::format("conv{}", stream),
           Convolution{.inputs = channels, .outputs = width, .padding_before = 1, .padding_after = 1, .first = first}});
      layers.push_back({fmt::format("relu{}", stream), Relu{}});
      channels = width;
    }
    layers.push_back({fmt::format("pool{}", stream), MaxPooling{}});
  }
  layers.push_back({"flatten", Flatten{}});
  const std::int64_t side = options.image_size / 32;
  std::int64_t inputs = channels * side * side;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    layers.push_back(
        {fmt::format("fc{}", number), Linear{.inputs = inputs, .outputs = kDense, .first = normal(0.01, stream++)}});
    layers.push_back({fmt::format("fc{}_relu", number), Relu{}});
    layers.push_back({fmt::format("dropout{}", number), Dropout{.zero_of_256 = kHalfOf256, .place = number - 1}});
    inputs = kDense;
  }
  layers.push_back({"fc3", Linear{.inputs = inputs, .outputs = options.classes, .first = normal(0.01, stream)}});
  return layers;
}

}  // namespace gyre::models
