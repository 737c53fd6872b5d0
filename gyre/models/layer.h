#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace gyre::models {

// A network as data: its layers by name, in the order in which they are applied. Network (network.h) runs them with
// libtorch; python/gyre/models makes torch.nn's modules of them. Both get names, shapes and first values from here, so
// neither can differ from the other. Nothing in this file needs libtorch.

/// How a weight begins. Each weight draws from a stream of its own of the network's seed.
struct FirstWeights {
  enum class Distribution {
    kGlorotUniform,  ///< Within sqrt(6 / (fan in + fan out)) of zero, where a kernel counts all its places.
    kNormal,         ///< Around zero, with `deviation`.
  };
  Distribution distribution = Distribution::kGlorotUniform;
  double deviation = 0;
  std::uint64_t stream = 0;
};

/// Of images (2 dimensions) or volumes (3), the same along each. Where a kernel of even size keeps the size of its
/// input, one more zero stands at the end, as in TensorFlow.
struct Convolution {
  int dimensions = 2;
  std::int64_t inputs = 0;  ///< Channels.
  std::int64_t outputs = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding_before = 0;
  std::int64_t padding_after = 0;
  bool bias = true;  ///< Begins at zero, as every layer's.
  FirstWeights first;
};

/// Of images, with libtorch's constants: a tenth of each batch's statistics is added to the running ones.
struct BatchNormalisation {
  std::int64_t channels = 0;
  float first_scale = 1;
};

struct Linear {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  FirstWeights first;
};

struct Relu {};
struct LeakyRelu {
  double slope = 0.01;
};
struct ScaledTanh {
  double factor = 1;
};

struct MaxPooling {
  int dimensions = 2;
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
};

/// Of each channel of an image.
struct Average {};

/// Everything of a sample in one row, channels outermost whatever the memory's order.
struct Flatten {};

/// While training. `place`: which of the network's dropouts it is, from 0; see dropout.h.
struct Dropout {
  unsigned zero_of_256 = 0;
  std::uint64_t place = 0;
};

struct Layer;
using Layers = std::vector<Layer>;

struct Sequence {
  Layers layers;
};

/// relu(layers(x) + shortcut(x)). The shortcut is a child named "downsample"; empty, it is x itself.
struct Residual {
  Layers layers;
  Layers shortcut;
};

inline constexpr const char* kShortcut = "downsample";

struct Layer {
  std::string name;
  std::variant<Convolution, BatchNormalisation, Linear, Relu, LeakyRelu, ScaledTanh, MaxPooling, Average, Flatten,
               Dropout, Sequence, Residual>
      kind;
};

/// A parameter or a buffer (a running mean or variance) of a network.
struct TensorOfNetwork {
  std::string name;  ///< As torch.nn has it: layer1.0.conv1.weight.
  std::vector<std::int64_t> shape;
  bool is_buffer = false;
  std::variant<float, FirstWeights> first;  ///< One value for all elements, or what they are drawn from.

  std::int64_t size() const;
};

/// All tensors, in the order in which a torch::nn::Module of these layers lists them.
std::vector<TensorOfNetwork> tensors_of(const Layers& layers);

/// Of the parameters.
std::int64_t parameter_count(const Layers& layers);

/// How the tensor begins in a network with this seed: the same bits on every machine, whoever asks. `values` has as
/// many as the tensor.
void fill_first_values(const TensorOfNetwork& tensor, std::uint64_t seed, std::span<float> values);

}  // namespace gyre::models
