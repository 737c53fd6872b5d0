#include "gyre/models/cosmoflow.h"

#include <fmt/format.h>

#include "gyre/models/dropout.h"
#include "gyre/models/internal/requirements.h"

namespace gyre::models {
namespace {

constexpr double kSlope = 0.3;   // Keras' LeakyReLU; libtorch's own default is 0.01.
constexpr double kOutput = 1.2;  // The targets lie between -1 and 1, which tanh alone never reaches.

void check(const CosmoflowOptions& options) {
  using internal::require;
  using internal::require_within;
  require_within(options.convolutions, 1, 12, "n_conv_layers");
  require_within(options.conv_size, 1, 4096, "conv_size");
  require_within(options.kernel_size, 1, 9, "kernel_size");
  require_within(options.channels, 1, 4096, "the number of channels");
  require_within(options.fc1_size, 1, 1 << 20, "fc1_size");
  require_within(options.fc2_size, 1, 1 << 20, "fc2_size");
  require_within(options.targets, 1, 1 << 20, "target_size");
  require_within(options.size, 1, 4096, "the size of the volumes");
  const std::int64_t step = std::int64_t{1} << options.convolutions;
  require(options.size % step == 0,
          fmt::format("volumes of {0}x{0}x{0} voxels cannot be halved {1} times: the size has to be a multiple of {2}",
                      options.size, options.convolutions, step));
  require(options.dropout >= 0 && options.dropout < 1,
          fmt::format("dropout is {}; a number from 0 to below 1 is needed", options.dropout));
}

}  // namespace

Layers cosmoflow(const CosmoflowOptions& options) {
  check(options);
  Layers layers;
  std::uint64_t stream = 0;
  std::int64_t channels = options.channels;
  for (std::int64_t i = 0; i < options.convolutions; ++i) {
    const std::int64_t outputs = options.conv_size << i;
    layers.push_back({fmt::format("conv{}", i + 1), Convolution{.dimensions = 3,
                                                                .inputs = channels,
                                                                .outputs = outputs,
                                                                .kernel = options.kernel_size,
                                                                .padding_before = (options.kernel_size - 1) / 2,
                                                                .padding_after = options.kernel_size / 2,
                                                                .first = {.stream = stream++}}});
    layers.push_back({fmt::format("activation{}", i + 1), LeakyRelu{kSlope}});
    layers.push_back({fmt::format("pool{}", i + 1), MaxPooling{.dimensions = 3}});
    channels = outputs;
  }
  layers.push_back({"flatten", Flatten{}});
  const std::int64_t side = options.size >> options.convolutions;
  std::int64_t inputs = channels * side * side * side;
  const unsigned zero_of_256 = dropout_of_256(options.dropout);
  for (const auto& [number, outputs] : {std::pair{1, options.fc1_size}, std::pair{2, options.fc2_size}}) {
    layers.push_back(
        {fmt::format("fc{}", number), Linear{.inputs = inputs, .outputs = outputs, .first = {.stream = stream++}}});
    layers.push_back({fmt::format("fc{}_activation", number), LeakyRelu{kSlope}});
    if (zero_of_256 > 0) {
      layers.push_back({fmt::format("dropout{}", number),
                        Dropout{.zero_of_256 = zero_of_256, .place = static_cast<std::uint64_t>(number - 1)}});
    }
    inputs = outputs;
  }
  layers.push_back({"out", Linear{.inputs = inputs, .outputs = options.targets, .first = {.stream = stream}}});
  layers.push_back({"scaled_tanh", ScaledTanh{kOutput}});
  return internal::require_possible_sizes(std::move(layers));
}

}  // namespace gyre::models
