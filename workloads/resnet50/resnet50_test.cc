// The promises of the third workload: the networks as published, and what makes batch normalisation right.
#include "workloads/resnet50/resnet50.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "workloads/resnet50/model.h"

namespace gyre::resnet50 {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::int64_t parameters_of(const Network& network) {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : network.parameters()) total += tensor.numel();
  return total;
}

TEST(ResnetNetwork, has_the_published_parameters) {
  const Network resnet50(NetworkOptions{}, 1);
  EXPECT_EQ(parameters_of(resnet50), 25'557'032);
  EXPECT_EQ(resnet50.parameters().size(), 161U);
  EXPECT_EQ(resnet50.buffers().size(), 106U);
  EXPECT_EQ(parameters_of(Network({.depth = 101}, 1)), 44'549'160);  // torchvision's table of weights.
}

TEST(ResnetNetwork, the_versions_differ_in_where_they_halve_the_image) {
  const Network v1({.depth = 14, .version = Version::kV1, .classes = 10}, 1);
  const Network v15({.depth = 14, .version = Version::kV15, .classes = 10}, 1);
  const at::Tensor images = at::rand({2, 3, 64, 64});
  // Blocks begin as their shortcut alone (the last scale is 0), which is the same in both.
  EXPECT_TRUE(at::allclose(v1.forward(images, false), v15.forward(images, false)));
  for (const Network* network : {&v1, &v15}) {
    for (const auto& [name, tensor] : network->parameters()) {
      if (name.ends_with("bn3.weight")) tensor.detach().fill_(1);
    }
  }
  EXPECT_FALSE(at::allclose(v1.forward(images, false), v15.forward(images, false)));
}

TEST(ResnetNetwork, training_moves_the_running_statistics_and_evaluation_does_not) {
  const Network network({.depth = 14, .classes = 10}, 1);
  const auto hash = [&] { return train::hash_tensors(network.buffers()); };
  const std::uint64_t fresh = hash();
  static_cast<void>(network.forward(at::rand({2, 3, 32, 32}), false));
  EXPECT_EQ(hash(), fresh);
  static_cast<void>(network.forward(at::rand({2, 3, 32, 32}), true));
  EXPECT_NE(hash(), fresh);
}

TEST(ResnetNetwork, starts_from_the_same_weights_for_the_same_seed) {
  const auto hash = [](std::uint64_t seed) {
    return train::hash_tensors(Network({.depth = 14, .classes = 10}, seed).parameters());
  };
  EXPECT_EQ(hash(1), hash(1));
  EXPECT_NE(hash(1), hash(2));
}

TEST(ResnetNetwork, first_weights_are_hes) {
  const Network network({.depth = 14, .classes = 10}, 1);
  const at::Tensor& conv1 = network.parameters().front().tensor;
  EXPECT_NEAR(conv1.std().item<double>(), std::sqrt(2.0 / (64 * 49)), 0.0005);
  EXPECT_NEAR(conv1.mean().item<double>(), 0, 0.001);
}

TEST(Resnet, what_cannot_be_a_network_or_a_data_set_is_named) {
  train::LocalExchange exchange;
  const auto failure = [&](const Options& options) -> std::string {
    try {
      run_training(options, exchange);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing failed";
  };
  std::string pattern = (fs::temp_directory_path() / "gyre-resnet50-test-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  Options options;
  options.data_dir = folder / "absent";
  EXPECT_THAT(failure(options), HasSubstr("absent"));
  options.data_dir = folder;
  EXPECT_THAT(failure(options), HasSubstr("neither a folder train nor files train-*"));
  fs::remove_all(folder);
  EXPECT_THROW(check_network({.depth = 34}), Error);
  EXPECT_THROW(check_network({.classes = 1}), Error);
  EXPECT_THROW(check_batch(1, 32), Error);  // As PyTorch: the variance of one value.
  EXPECT_NO_THROW(check_batch(2, 32));
  EXPECT_NO_THROW(check_batch(1, 33));
}

}  // namespace
}  // namespace gyre::resnet50
