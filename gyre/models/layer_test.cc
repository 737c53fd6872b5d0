// The networks as they are published, and first weights that are the same bits everywhere.
#include "gyre/models/layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/cosmoflow.h"
#include "gyre/models/dropout.h"
#include "gyre/models/resnet.h"
#include "gyre/models/vgg16.h"

namespace gyre::models {
namespace {

using testing::HasSubstr;

std::size_t count_of(const Layers& layers, bool buffers) {
  const std::vector<TensorOfNetwork> tensors = tensors_of(layers);
  return static_cast<std::size_t>(std::ranges::count(tensors, buffers, &TensorOfNetwork::is_buffer));
}

std::vector<float> first_values(const TensorOfNetwork& tensor, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  fill_first_values(tensor, seed, values);
  return values;
}

/// Of all parameters' first values with their names, in order.
std::uint64_t hash_of(const Layers& layers, std::uint64_t seed) {
  std::uint64_t hash = 0;
  for (const TensorOfNetwork& tensor : tensors_of(layers)) {
    if (tensor.is_buffer) continue;
    const std::vector<float> values = first_values(tensor, seed);
    hash = xxh3_64(as_bytes(tensor.name), hash);
    hash = xxh3_64(std::as_bytes(std::span(values)), hash);
  }
  return hash;
}

std::string refusal(const std::function<Layers()>& network) {
  try {
    static_cast<void>(network());
  } catch (const Error& error) {
    return error.what();
  }
  return "it was accepted";
}

TEST(Networks, have_the_published_parameters) {
  const auto expect = [](const Layers& layers, std::int64_t values, std::size_t tensors) {
    EXPECT_EQ(parameter_count(layers), values);
    EXPECT_EQ(count_of(layers, false), tensors);
  };
  expect(cifar10_cnn({}), 1'250'858, 12);
  expect(cosmoflow({}), 8'907'556, 16);                  // MLPerf HPC 1.0.
  expect(cosmoflow({.kernel_size = 2}), 5'597'604, 16);  // MLPerf HPC 0.7.
  expect(resnet({}), 25'557'032, 161);
  expect(resnet({.depth = 101}), 44'549'160, 314);  // torchvision's table of weights, as the next.
  expect(vgg16({}), 138'357'544, 32);
  EXPECT_EQ(count_of(resnet({}), true), 106U);
}

TEST(Networks, tensors_have_the_names_and_shapes_of_torch) {
  const std::vector<TensorOfNetwork> tensors = tensors_of(resnet({.depth = 14, .classes = 10}));
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &TensorOfNetwork::name);
    return found == tensors.end() ? std::vector<std::int64_t>{} : found->shape;
  };
  EXPECT_EQ(shape_of("conv1.weight"), (std::vector<std::int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(shape_of("layer2.0.downsample.0.weight"), (std::vector<std::int64_t>{512, 256, 1, 1}));
  EXPECT_EQ(shape_of("layer1.0.bn3.running_var"), (std::vector<std::int64_t>{256}));
  EXPECT_EQ(shape_of("fc.weight"), (std::vector<std::int64_t>{10, 2048}));
}

TEST(Networks, that_cannot_be_are_refused_with_the_reason) {
  EXPECT_THAT(refusal([] { return cifar10_cnn({.image_size = 9}); }), HasSubstr("10 to"));
  EXPECT_THAT(refusal([] { return cosmoflow({.size = 48}); }), HasSubstr("multiple of 32"));
  EXPECT_THAT(refusal([] { return cosmoflow({.dropout = 1.0}); }), HasSubstr("below 1"));
  EXPECT_THAT(refusal([] { return cosmoflow({.conv_size = 0}); }), HasSubstr("conv_size is 0"));
  EXPECT_THAT(refusal([] { return cosmoflow({.size = 4096, .fc1_size = 1 << 20}); }), HasSubstr("fc1"));
  // More values than an integer can count.
  EXPECT_THAT(
      refusal([] { return cosmoflow({.size = 4096, .convolutions = 1, .conv_size = 4096, .fc1_size = 1 << 20}); }),
      HasSubstr("fc1"));
  EXPECT_THAT(refusal([] { return resnet({.depth = 34}); }), HasSubstr("no ResNet-34"));
  EXPECT_THAT(refusal([] { return resnet({.classes = 1}); }), HasSubstr("1 classes"));
  EXPECT_THAT(refusal([] { return vgg16({.image_size = 31}); }), HasSubstr("32 to"));
}

TEST(FirstValues, are_the_same_bits_everywhere_and_others_for_another_seed) {
  EXPECT_EQ(hash_of(cifar10_cnn({}), 1), 5228257624122859337U);
  EXPECT_EQ(hash_of(cosmoflow({.size = 8, .convolutions = 3, .conv_size = 4}), 1), 7717090963121405126U);
  EXPECT_EQ(hash_of(resnet({.depth = 14, .classes = 10}), 1), 13346930346373311948U);
  EXPECT_NE(hash_of(cifar10_cnn({}), 1), hash_of(cifar10_cnn({}), 2));
}

TEST(FirstValues, of_glorot_stay_within_their_limit) {
  const std::vector<float> values = first_values({.name = "w", .shape = {32, 16, 3, 3}, .first = FirstWeights{}}, 1);
  const float limit = std::sqrt(6.0F / (9 * (32 + 16)));
  const auto [least, most] = std::ranges::minmax(values);
  EXPECT_LE(std::max(-least, most), limit);
  EXPECT_GT(std::max(-least, most), 0.99F * limit);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()), 0, 0.002);
}

TEST(FirstValues, of_resnet_are_hes_and_its_blocks_begin_as_their_shortcuts) {
  const std::vector<TensorOfNetwork> tensors = tensors_of(resnet({.depth = 14, .classes = 10}));
  const std::vector<float> conv1 = first_values(tensors.front(), 1);
  double squares = 0;
  for (const float value : conv1) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(conv1.size())), std::sqrt(2.0 / (64 * 49)), 0.0005);
  for (const TensorOfNetwork& tensor : tensors) {
    const bool last = tensor.name.ends_with("bn3.weight");
    if (!last && !tensor.name.ends_with("bn2.weight")) continue;
    EXPECT_THAT(first_values(tensor, 1), testing::Each(last ? 0.0F : 1.0F)) << tensor.name;
  }
}

std::vector<float> mask(std::uint64_t samples, std::size_t values, unsigned zero_of_256, std::uint64_t first,
                        std::uint64_t step) {
  std::vector<float> result(samples * values);
  fill_dropout_mask(result, samples, zero_of_256, 2, {.seed = 1, .step = step, .first_position = first});
  return result;
}

TEST(DropoutMask, depends_on_the_place_in_the_global_batch_and_not_on_the_rank) {
  const std::vector<float> whole = mask(6, 512, 128, 0, 5);
  const auto half = whole.begin() + 2 * 512;
  EXPECT_EQ(mask(2, 512, 128, 0, 5), std::vector<float>(whole.begin(), half));
  EXPECT_EQ(mask(4, 512, 128, 2, 5), std::vector<float>(half, whole.end()));
  EXPECT_NE(whole, mask(6, 512, 128, 0, 6));
}

TEST(DropoutMask, has_the_share_of_zeros_and_the_mean_that_it_promises) {
  const std::vector<float> quarter = mask(100, 510, 64, 0, 0);  // No multiple of a draw's four values.
  const auto size = static_cast<double>(quarter.size());
  EXPECT_NEAR(static_cast<double>(std::ranges::count(quarter, 0.0F)) / size, 0.25, 0.01);
  EXPECT_NEAR(std::accumulate(quarter.begin(), quarter.end(), 0.0) / size, 1.0, 0.02);
}

}  // namespace
}  // namespace gyre::models
