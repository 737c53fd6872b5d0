#include "workloads/cosmoflow/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::cosmoflow {
namespace {

constexpr double kSlope = 0.3;   // Keras' LeakyReLU; libtorch's own default is 0.01.
constexpr double kOutput = 1.2;  // The targets lie between -1 and 1, which tanh alone never reaches.
constexpr std::int64_t kMostValues = std::int64_t{1} << 40;

// Keeps the first weights' draws apart from those of the shuffle and of dropout, which may use the same seed.
constexpr std::uint64_t kWeightDomain = 0x7765696768740000;

struct Layer {
  std::string name;
  std::vector<std::int64_t> shape;  // Of the weight.
};

std::vector<Layer> layers_of(const NetworkOptions& options) {
  std::vector<Layer> layers;
  std::int64_t channels = options.channels;
  const std::int64_t k = options.kernel_size;
  for (std::int64_t i = 0; i < options.convolutions; ++i) {
    const std::int64_t out = options.conv_size << i;
    layers.push_back({fmt::format("conv{}", i + 1), {out, channels, k, k, k}});
    channels = out;
  }
  const std::int64_t side = options.size >> options.convolutions;
  layers.push_back({"fc1", {options.fc1_size, channels * side * side * side}});
  layers.push_back({"fc2", {options.fc2_size, options.fc1_size}});
  layers.push_back({"out", {options.targets, options.fc2_size}});
  return layers;
}

at::Tensor activated(const at::Tensor& input) { return at::leaky_relu(input, kSlope); }

}  // namespace

void check_network(const NetworkOptions& options) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw Error(ErrorCode::kInvalidArgument, what);
  };
  const auto within = [&](std::int64_t value, std::int64_t low, std::int64_t high, const char* name) {
    require(value >= low && value <= high, fmt::format("{} is {}; {} to {} are possible", name, value, low, high));
  };
  within(options.convolutions, 1, 12, "n_conv_layers");
  within(options.conv_size, 1, 4096, "conv_size");
  within(options.kernel_size, 1, 9, "kernel_size");
  within(options.channels, 1, 4096, "the number of channels");
  within(options.fc1_size, 1, 1 << 20, "fc1_size");
  within(options.fc2_size, 1, 1 << 20, "fc2_size");
  within(options.targets, 1, 1 << 20, "target_size");
  within(options.size, 1, 4096, "the size of the volumes");
  const std::int64_t step = std::int64_t{1} << options.convolutions;
  require(options.size % step == 0,
          fmt::format("volumes of {0}x{0}x{0} voxels cannot be halved {1} times: the size has to be a multiple of {2}",
                      options.size, options.convolutions, step));
  require(options.dropout >= 0 && options.dropout < 1,
          fmt::format("dropout is {}; a number from 0 to below 1 is needed", options.dropout));
  require(options.dropout == 0 || (options.fc1_size % 4 == 0 && options.fc2_size % 4 == 0),
          "with dropout, fc1_size and fc2_size have to be multiples of 4");
  for (const Layer& layer : layers_of(options)) {
    std::int64_t values = 1;
    for (const std::int64_t side : layer.shape) values *= side;
    require(values < kMostValues, fmt::format("layer {} would have {} weights", layer.name, values));
  }
}

Network::Network(const NetworkOptions& options, std::uint64_t seed) : options_(options) {
  check_network(options_);
  std::uint64_t stream = 0;
  for (const Layer& layer : layers_of(options_)) {
    const at::Tensor weight = at::empty(layer.shape);
    Random random(seed ^ kWeightDomain, stream++);
    train::glorot_uniform(weight, random);
    parameters_.push_back({layer.name + ".weight", weight.requires_grad_(true)});
    parameters_.push_back({layer.name + ".bias", at::zeros({layer.shape[0]}).requires_grad_(true)});
  }
}

/// With TensorFlow's "same" padding: where a kernel of even size needs one more on one side, it is at the end.
at::Tensor Network::convolution(const at::Tensor& input, std::int64_t layer) const {
  const std::int64_t before = (options_.kernel_size - 1) / 2;
  if (options_.kernel_size % 2 == 1) {
    return at::conv3d(input, weight(layer), bias(layer), 1, at::IntArrayRef({before, before, before}));
  }
  const std::int64_t after = options_.kernel_size / 2;
  const at::Tensor padded = at::constant_pad_nd(input, {before, after, before, after, before, after});
  return at::conv3d(padded, weight(layer), bias(layer));
}

at::Tensor Network::forward(const at::Tensor& volumes, const training::DropoutKey* dropout) const {
  at::Tensor x = volumes;
  for (std::int64_t layer = 0; layer < options_.convolutions; ++layer) {
    x = at::max_pool3d(activated(convolution(x, layer)), 2);
  }
  x = x.contiguous().flatten(1);
  const unsigned zero_of_256 = dropout == nullptr ? 0 : training::dropout_of_256(options_.dropout);
  for (std::int64_t dense = 0; dense < 2; ++dense) {
    const std::int64_t layer = options_.convolutions + dense;
    x = activated(at::linear(x, weight(layer), bias(layer)));
    if (zero_of_256 > 0) {
      x = x * training::dropout_mask(x.size(0), x.size(1), zero_of_256, static_cast<std::uint64_t>(dense), *dropout);
    }
  }
  const std::int64_t last = options_.convolutions + 2;
  return at::tanh(at::linear(x, weight(last), bias(last))) * kOutput;
}

}  // namespace gyre::cosmoflow
