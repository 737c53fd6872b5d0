#include "python/gyre/core/models_binding.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/cosmoflow.h"
#include "gyre/models/layer.h"
#include "gyre/models/resnet.h"
#include "gyre/models/vgg16.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;

/// A layer in PyTorch's words: the class of torch.nn (or of gyre.models.layers) and its arguments; of a group, the
/// layers in it.
struct InTorch {
  std::string kind;
  nb::dict arguments = nb::dict();
  models::Layers layers = {};
};

template <typename Value>
void set(nb::dict& arguments, const char* name, const Value& value) {
  arguments[name] = nb::cast(value);
}

std::string with_dimensions(const char* kind, int dimensions) { return fmt::format("{}{}d", kind, dimensions); }

InTorch in_torch(const models::Convolution& layer) {
  InTorch result{.kind = with_dimensions("Conv", layer.dimensions)};
  set(result.arguments, "in_channels", layer.inputs);
  set(result.arguments, "out_channels", layer.outputs);
  set(result.arguments, "kernel_size", layer.kernel);
  set(result.arguments, "stride", layer.stride);
  if (layer.padding_before == layer.padding_after) {
    set(result.arguments, "padding", layer.padding_before);
  } else {  // PyTorch has no other word for it, and puts the additional zero at the end, too.
    GYRE_CHECK((layer.stride == 1 && layer.padding_before + layer.padding_after == layer.kernel - 1));
    set(result.arguments, "padding", std::string("same"));
  }
  set(result.arguments, "bias", layer.bias);
  return result;
}

InTorch in_torch(const models::BatchNormalisation& layer) {
  InTorch result{.kind = "BatchNorm2d"};
  set(result.arguments, "num_features", layer.channels);
  return result;
}

InTorch in_torch(const models::Linear& layer) {
  InTorch result{.kind = "Linear"};
  set(result.arguments, "in_features", layer.inputs);
  set(result.arguments, "out_features", layer.outputs);
  return result;
}

InTorch in_torch(const models::Relu& /*layer*/) { return {.kind = "ReLU"}; }

InTorch in_torch(const models::LeakyRelu& layer) {
  InTorch result{.kind = "LeakyReLU"};
  set(result.arguments, "negative_slope", layer.slope);
  return result;
}

InTorch in_torch(const models::ScaledTanh& layer) {
  InTorch result{.kind = "ScaledTanh"};
  set(result.arguments, "factor", layer.factor);
  return result;
}

InTorch in_torch(const models::MaxPooling& layer) {
  InTorch result{.kind = with_dimensions("MaxPool", layer.dimensions)};
  set(result.arguments, "kernel_size", layer.kernel);
  set(result.arguments, "stride", layer.stride);
  set(result.arguments, "padding", layer.padding);
  return result;
}

InTorch in_torch(const models::Average& /*layer*/) {
  InTorch result{.kind = "AdaptiveAvgPool2d"};
  set(result.arguments, "output_size", 1);
  return result;
}

InTorch in_torch(const models::Flatten& /*layer*/) { return {.kind = "Flatten"}; }

InTorch in_torch(const models::Dropout& layer) {
  constexpr double kAll = 256;
  InTorch result{.kind = "Dropout"};
  set(result.arguments, "p", layer.zero_of_256 / kAll);
  return result;
}

InTorch in_torch(const models::Sequence& group) { return {.kind = "Sequential", .layers = group.layers}; }

InTorch in_torch(const models::Residual& group) {
  InTorch result{.kind = "Residual", .layers = group.layers};
  if (!group.shortcut.empty()) result.layers.push_back({models::kShortcut, models::Sequence{group.shortcut}});
  return result;
}

nb::list described(const models::Layers& layers) {
  nb::list result;
  for (const models::Layer& layer : layers) {
    const InTorch found = std::visit([](const auto& kind) { return in_torch(kind); }, layer.kind);
    result.append(nb::make_tuple(layer.name, found.kind, found.arguments, described(found.layers)));
  }
  return result;
}

class Definition {
 public:
  explicit Definition(models::Layers layers) : layers_(std::move(layers)), tensors_(models::tensors_of(layers_)) {}

  nb::list layers() const { return described(layers_); }

  std::vector<std::string> tensors() const {
    std::vector<std::string> names;
    for (const models::TensorOfNetwork& tensor : tensors_) names.push_back(tensor.name);
    return names;
  }

  void fill(const std::string& name, std::uint64_t seed,
            const nb::ndarray<float, nb::c_contig, nb::device::cpu>& values) const {
    for (const models::TensorOfNetwork& tensor : tensors_) {
      if (tensor.name != name) continue;
      if (values.size() != static_cast<std::size_t>(tensor.size())) break;
      const std::span<float> memory(values.data(), values.size());
      const nb::gil_scoped_release released;
      models::fill_first_values(tensor, seed, memory);
      return;
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the network has no tensor '{}' of {} values", name, values.size()));
  }

 private:
  models::Layers layers_;
  std::vector<models::TensorOfNetwork> tensors_;
};

Definition cifar10_cnn(std::int64_t image_size, std::int64_t classes) {
  return Definition(models::cifar10_cnn({.image_size = image_size, .classes = classes}));
}

Definition cosmoflow(std::int64_t size, std::int64_t channels, std::int64_t convolutions, std::int64_t conv_size,
                     std::int64_t kernel_size, std::int64_t fc1_size, std::int64_t fc2_size, std::int64_t targets,
                     double dropout) {
  return Definition(models::cosmoflow({.size = size,
                                       .channels = channels,
                                       .convolutions = convolutions,
                                       .conv_size = conv_size,
                                       .kernel_size = kernel_size,
                                       .fc1_size = fc1_size,
                                       .fc2_size = fc2_size,
                                       .targets = targets,
                                       .dropout = dropout}));
}

Definition resnet(int depth, const std::string& version, std::int64_t classes) {
  if (version != "v1" && version != "v1.5") {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no ResNet {}; there are: v1, v1.5", version));
  }
  const auto kind = version == "v1" ? models::ResnetVersion::kV1 : models::ResnetVersion::kV15;
  return Definition(models::resnet({.depth = depth, .version = kind, .classes = classes}));
}

Definition vgg16(std::int64_t image_size, std::int64_t classes) {
  return Definition(models::vgg16({.image_size = image_size, .classes = classes}));
}

}  // namespace

void bind_models(nb::module_& module) {
  using nb::arg;
  nb::class_<Definition>(module, "NetworkDefinition", "A network as data: gyre/models/layer.h.")
      .def_prop_ro(
          "layers", &Definition::layers,
          "Per layer its name, the class of torch.nn or gyre.models.layers, its arguments, and the layers in it.")
      .def_prop_ro("tensors", &Definition::tensors, "The names of its parameters and buffers.")
      .def("fill", &Definition::fill, arg("name"), arg("seed"), arg("values").noconvert(),
           "Writes the first values of a tensor.");
  module.def("cifar10_cnn", &cifar10_cnn, arg("image_size"), arg("classes"));
  module.def("cosmoflow", &cosmoflow, arg("size"), arg("channels"), arg("convolutions"), arg("conv_size"),
             arg("kernel_size"), arg("fc1_size"), arg("fc2_size"), arg("targets"), arg("dropout"));
  module.def("resnet", &resnet, arg("depth"), arg("version"), arg("classes"));
  module.def("vgg16", &vgg16, arg("image_size"), arg("classes"));
}

}  // namespace gyre::python
