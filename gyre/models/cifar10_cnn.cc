#include "gyre/models/cifar10_cnn.h"

#include <string>

#include "gyre/models/internal/requirements.h"

namespace gyre::models {
namespace {

constexpr unsigned kQuarter = 64;
constexpr unsigned kHalf = 128;

Layer convolution(int number, std::int64_t inputs, std::int64_t outputs, std::int64_t padding) {
  return {"conv" + std::to_string(number), Convolution{.inputs = inputs,
                                                       .outputs = outputs,
                                                       .padding_before = padding,
                                                       .padding_after = padding,
                                                       .first = {.stream = static_cast<std::uint64_t>(number - 1)}}};
}

}  // namespace

Layers cifar10_cnn(const Cifar10CnnOptions& options) {
  internal::require_within(options.image_size, 10, 1 << 16, "the size of the images");
  internal::require_within(options.classes, 1, 1 << 20, "the number of classes");
  // Two convolutions take two pixels each, and each pooling halves.
  const std::int64_t side = ((options.image_size - 2) / 2 - 2) / 2;
  return {convolution(1, 3, 32, 1),
          {"relu1", Relu{}},
          convolution(2, 32, 32, 0),
          {"relu2", Relu{}},
          {"pool1", MaxPooling{}},
          {"dropout1", Dropout{.zero_of_256 = kQuarter, .place = 0}},
          convolution(3, 32, 64, 1),
          {"relu3", Relu{}},
          convolution(4, 64, 64, 0),
          {"relu4", Relu{}},
          {"pool2", MaxPooling{}},
          {"dropout2", Dropout{.zero_of_256 = kQuarter, .place = 1}},
          {"flatten", Flatten{}},
          {"dense1", Linear{.inputs = 64 * side * side, .outputs = 512, .first = {.stream = 4}}},
          {"relu5", Relu{}},
          {"dropout3", Dropout{.zero_of_256 = kHalf, .place = 2}},
          {"dense2", Linear{.inputs = 512, .outputs = options.classes, .first = {.stream = 5}}}};
}

}  // namespace gyre::models
