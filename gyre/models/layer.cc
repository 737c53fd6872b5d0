#include "gyre/models/layer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::models {
namespace {

// Keeps the first weights' draws apart from those of the shuffle and of dropout, which may use the same seed.
constexpr std::uint64_t kWeightDomain = 0x7765696768740000;

void fill_glorot_uniform(const std::vector<std::int64_t>& shape, Random& random, std::span<float> values) {
  GYRE_CHECK(shape.size() >= 2U);
  std::int64_t window = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) window *= shape[i];
  const auto fans = static_cast<double>((shape[0] + shape[1]) * window);
  const auto limit = static_cast<float>(std::sqrt(6.0 / fans));
  for (float& value : values) value = random.uniform(-limit, limit);
}

/// Box and Muller's transform, two values at a time.
void fill_normal(double deviation, Random& random, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double radius = deviation * std::sqrt(-2 * std::log(1.0 - static_cast<double>(random.uniform())));
    const double angle = 2 * std::numbers::pi * static_cast<double>(random.uniform());
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

/// Walks the layers and notes their tensors.
class Tensors {
 public:
  void add_all(const std::string& prefix, const Layers& layers) {
    for (const Layer& layer : layers) {
      std::visit([&](const auto& kind) { add(prefix + layer.name + ".", kind); }, layer.kind);
    }
  }

  std::vector<TensorOfNetwork> take() { return std::move(tensors_); }

 private:
  void add(const std::string& prefix, const Convolution& layer) {
    std::vector<std::int64_t> shape = {layer.outputs, layer.inputs};
    shape.insert(shape.end(), static_cast<std::size_t>(layer.dimensions), layer.kernel);
    tensors_.push_back({.name = prefix + "weight", .shape = std::move(shape), .first = layer.first});
    if (layer.bias) tensors_.push_back({.name = prefix + "bias", .shape = {layer.outputs}, .first = 0.0F});
  }

  void add(const std::string& prefix, const BatchNormalisation& layer) {
    tensors_.push_back({.name = prefix + "weight", .shape = {layer.channels}, .first = layer.first_scale});
    tensors_.push_back({.name = prefix + "bias", .shape = {layer.channels}, .first = 0.0F});
    tensors_.push_back({.name = prefix + "running_mean", .shape = {layer.channels}, .is_buffer = true, .first = 0.0F});
    tensors_.push_back({.name = prefix + "running_var", .shape = {layer.channels}, .is_buffer = true, .first = 1.0F});
  }

  void add(const std::string& prefix, const Linear& layer) {
    tensors_.push_back({.name = prefix + "weight", .shape = {layer.outputs, layer.inputs}, .first = layer.first});
    tensors_.push_back({.name = prefix + "bias", .shape = {layer.outputs}, .first = 0.0F});
  }

  void add(const std::string& prefix, const Sequence& group) { add_all(prefix, group.layers); }

  void add(const std::string& prefix, const Residual& group) {
    add_all(prefix, group.layers);
    add_all(prefix + kShortcut + ".", group.shortcut);
  }

  template <typename WithoutTensors>
  void add(const std::string& /*prefix*/, const WithoutTensors& /*layer*/) {}

  std::vector<TensorOfNetwork> tensors_;
};

}  // namespace

std::int64_t TensorOfNetwork::size() const {
  std::int64_t size = 1;
  for (const std::int64_t side : shape) size *= side;
  return size;
}

std::vector<TensorOfNetwork> tensors_of(const Layers& layers) {
  Tensors tensors;
  tensors.add_all("", layers);
  return tensors.take();
}

std::int64_t parameter_count(const Layers& layers) {
  std::int64_t count = 0;
  for (const TensorOfNetwork& tensor : tensors_of(layers)) count += tensor.is_buffer ? 0 : tensor.size();
  return count;
}

void fill_first_values(const TensorOfNetwork& tensor, std::uint64_t seed, std::span<float> values) {
  GYRE_CHECK(values.size() == static_cast<std::size_t>(tensor.size()));
  if (const float* constant = std::get_if<float>(&tensor.first)) {
    std::ranges::fill(values, *constant);
    return;
  }
  const auto& first = std::get<FirstWeights>(tensor.first);
  Random random(seed ^ kWeightDomain, first.stream);
  if (first.distribution == FirstWeights::Distribution::kGlorotUniform) {
    fill_glorot_uniform(tensor.shape, random, values);
  } else {
    fill_normal(first.deviation, random, values);
  }
}

}  // namespace gyre::models
