#include "gyre/models/network.h"

#include <ATen/ATen.h>

#include <span>
#include <variant>

namespace gyre::models {
namespace internal {

using Parts = std::vector<std::shared_ptr<Part>>;

/// Children of `parent`, by the layers' names.
Parts register_all(torch::nn::Module& parent, const Layers& layers);
at::Tensor forward_all(const Parts& parts, const at::Tensor& input, const DropoutKey* dropout);

/// One layer, or a group of them, with the tensors that it has.
class Part : public torch::nn::Module {
 public:
  explicit Part(const Layer& layer) : kind_(layer.kind) {
    std::visit([this](const auto& kind) { add_tensors(kind); }, layer.kind);
  }

  at::Tensor forward(const at::Tensor& input, const DropoutKey* dropout) {
    return std::visit([&](const auto& kind) { return run(kind, input, dropout); }, kind_);
  }

 private:
  void add_tensors(const Convolution& layer) {
    std::vector<std::int64_t> shape = {layer.outputs, layer.inputs};
    shape.insert(shape.end(), static_cast<std::size_t>(layer.dimensions), layer.kernel);
    weight_ = register_parameter("weight", at::empty(shape));
    if (layer.bias) bias_ = register_parameter("bias", at::empty({layer.outputs}));
  }

  void add_tensors(const BatchNormalisation& layer) {
    weight_ = register_parameter("weight", at::empty({layer.channels}));
    bias_ = register_parameter("bias", at::empty({layer.channels}));
    running_mean_ = register_buffer("running_mean", at::empty({layer.channels}));
    running_variance_ = register_buffer("running_var", at::empty({layer.channels}));
  }

  void add_tensors(const Linear& layer) {
    weight_ = register_parameter("weight", at::empty({layer.outputs, layer.inputs}));
    bias_ = register_parameter("bias", at::empty({layer.outputs}));
  }

  void add_tensors(const Sequence& group) { layers_ = register_all(*this, group.layers); }

  void add_tensors(const Residual& group) {
    layers_ = register_all(*this, group.layers);
    if (!group.shortcut.empty()) {
      shortcut_.push_back(
          register_module(kShortcut, std::make_shared<Part>(Layer{kShortcut, Sequence{group.shortcut}})));
    }
  }

  template <typename WithoutTensors>
  void add_tensors(const WithoutTensors& /*layer*/) {}

  at::Tensor run(const Convolution& layer, const at::Tensor& input, const DropoutKey* /*dropout*/) const {
    at::Tensor x = input;
    std::int64_t padding = layer.padding_before;
    if (layer.padding_after != layer.padding_before) {
      std::vector<std::int64_t> sides;
      for (int i = 0; i < layer.dimensions; ++i) {
        sides.insert(sides.end(), {layer.padding_before, layer.padding_after});
      }
      x = at::constant_pad_nd(x, sides);
      padding = 0;
    }
    return layer.dimensions == 3 ? at::conv3d(x, weight_, bias_, layer.stride, padding)
                                 : at::conv2d(x, weight_, bias_, layer.stride, padding);
  }

  at::Tensor run(const BatchNormalisation& /*layer*/, const at::Tensor& input, const DropoutKey* /*dropout*/) const {
    constexpr double kMomentum = 0.1;  // Of the new statistics.
    constexpr double kEpsilon = 1e-5;
    return at::batch_norm(input, weight_, bias_, running_mean_, running_variance_, is_training(), kMomentum, kEpsilon,
                          false);
  }

  at::Tensor run(const Linear& /*layer*/, const at::Tensor& input, const DropoutKey* /*dropout*/) const {
    return at::linear(input, weight_, bias_);
  }

  static at::Tensor run(const Relu& /*layer*/, const at::Tensor& input, const DropoutKey* /*dropout*/) {
    return at::relu(input);
  }

  static at::Tensor run(const LeakyRelu& layer, const at::Tensor& input, const DropoutKey* /*dropout*/) {
    return at::leaky_relu(input, layer.slope);
  }

  static at::Tensor run(const ScaledTanh& layer, const at::Tensor& input, const DropoutKey* /*dropout*/) {
    return at::tanh(input) * layer.factor;
  }

  static at::Tensor run(const MaxPooling& layer, const at::Tensor& input, const DropoutKey* /*dropout*/) {
    return layer.dimensions == 3 ? at::max_pool3d(input, layer.kernel, layer.stride, layer.padding)
                                 : at::max_pool2d(input, layer.kernel, layer.stride, layer.padding);
  }

  static at::Tensor run(const Average& /*layer*/, const at::Tensor& input, const DropoutKey* /*dropout*/) {
    return input.mean({2, 3});
  }

  static at::Tensor run(const Flatten& /*layer*/, const at::Tensor& input, const DropoutKey* /*dropout*/) {
    return input.contiguous().flatten(1);
  }

  at::Tensor run(const Dropout& layer, const at::Tensor& input, const DropoutKey* dropout) const {
    constexpr double kAll = 256;
    if (!is_training()) return input;
    if (dropout == nullptr) return at::dropout(input, layer.zero_of_256 / kAll, true);
    return input * mask_for(layer, input, *dropout);
  }

  at::Tensor run(const Sequence& /*group*/, const at::Tensor& input, const DropoutKey* dropout) const {
    return forward_all(layers_, input, dropout);
  }

  at::Tensor run(const Residual& /*group*/, const at::Tensor& input, const DropoutKey* dropout) const {
    const at::Tensor x = forward_all(layers_, input, dropout);
    return at::relu(x + forward_all(shortcut_, input, dropout));
  }

  /// Of images in the memory order of channels last: pixel by pixel, all channels of a pixel together.
  static at::Tensor mask_for(const Dropout& layer, const at::Tensor& input, const DropoutKey& dropout) {
    std::vector<std::int64_t> shape = input.sizes().vec();
    shape.erase(shape.begin() + 1);
    shape.push_back(input.size(1));
    const at::Tensor mask = at::empty(shape);
    fill_dropout_mask({mask.mutable_data_ptr<float>(), static_cast<std::size_t>(mask.numel())},
                      static_cast<std::uint64_t>(input.size(0)), layer.zero_of_256, layer.place, dropout);
    return mask.movedim(-1, 1).to(input.options());
  }

  decltype(Layer::kind) kind_;
  at::Tensor weight_, bias_, running_mean_, running_variance_;
  Parts layers_;
  Parts shortcut_;
};

at::Tensor forward_all(const Parts& parts, const at::Tensor& input, const DropoutKey* dropout) {
  at::Tensor x = input;
  for (const std::shared_ptr<Part>& part : parts) x = part->forward(x, dropout);
  return x;
}

Parts register_all(torch::nn::Module& parent, const Layers& layers) {
  Parts parts;
  for (const Layer& layer : layers) {
    parts.push_back(parent.register_module(layer.name, std::make_shared<Part>(layer)));
  }
  return parts;
}

}  // namespace internal

Network::Network(const Layers& layers, std::uint64_t seed) : parts_(internal::register_all(*this, layers)) {
  const auto parameters = named_parameters();
  const auto buffers = named_buffers();
  for (const TensorOfNetwork& tensor : tensors_of(layers)) {
    const at::Tensor& values = tensor.is_buffer ? buffers[tensor.name] : parameters[tensor.name];
    fill_first_values(tensor, seed, {values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  }
}

at::Tensor Network::forward(const at::Tensor& input, const DropoutKey* dropout) {
  return internal::forward_all(parts_, input, dropout);
}

}  // namespace gyre::models
