// The networks of layers in libtorch: what they compute, and that they are torch::nn::Modules as others are.
#include "gyre/models/network.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/cosmoflow.h"
#include "gyre/models/resnet.h"

namespace gyre::models {
namespace {

bool equal_buffers(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

TEST(Network, lists_the_tensors_of_its_layers_in_their_order) {
  const Layers layers = resnet({.depth = 14, .classes = 10});
  const Network network(layers, 1);
  std::vector<std::string> parameters;
  std::vector<std::string> buffers;
  for (const TensorOfNetwork& tensor : tensors_of(layers)) {
    (tensor.is_buffer ? buffers : parameters).push_back(tensor.name);
  }
  EXPECT_EQ(network.named_parameters().keys(), parameters);
  EXPECT_EQ(network.named_buffers().keys(), buffers);
  for (const at::Tensor& parameter : network.parameters()) EXPECT_TRUE(parameter.requires_grad());
}

TEST(Network, a_cosmoflow_answers_within_its_range_whatever_the_kernel) {
  for (const std::int64_t kernel : {1, 2, 3, 4}) {
    Network network(cosmoflow({.size = 8, .convolutions = 3, .conv_size = 4, .kernel_size = kernel}), 1);
    const at::Tensor answers = network.forward(at::rand({2, 4, 8, 8, 8}) * 1000);
    EXPECT_EQ(answers.sizes(), (std::vector<std::int64_t>{2, 4}));
    EXPECT_LE(answers.abs().max().item<float>(), 1.2F);
  }
}

TEST(Network, an_even_kernel_pads_as_tensorflow_does) {
  // A kernel of two: padding stands at the end, so a voxel sees itself and its successor, and the last one itself.
  Network network(cosmoflow({.size = 2, .channels = 1, .convolutions = 1, .conv_size = 1, .kernel_size = 2}), 1);
  network.eval();
  auto parameters = network.named_parameters();
  const c10::NoGradGuard no_grad;
  parameters["conv1.weight"].fill_(0);
  parameters["conv1.weight"][0][0][0][0][1] = 1;  // The successor along the last axis.
  parameters["fc1.weight"].fill_(1);
  parameters["fc2.weight"].fill_(0.1 / 64);
  parameters["out.weight"].fill_(1);
  at::Tensor volume = at::zeros({1, 1, 2, 2, 2});
  volume[0][0][0][0][0] = 100;  // No voxel comes before it: nothing sees it.
  EXPECT_EQ(network.forward(volume).abs().max().item<double>(), 0);
  volume[0][0][0][0][1] = 0.01;
  EXPECT_GT(network.forward(volume).abs().max().item<double>(), 0);
}

TEST(Network, the_versions_of_resnet_differ_in_where_they_halve_the_image) {
  Network v1(resnet({.depth = 14, .version = ResnetVersion::kV1, .classes = 10}), 1);
  Network v15(resnet({.depth = 14, .version = ResnetVersion::kV15, .classes = 10}), 1);
  const at::Tensor images = at::rand({2, 3, 64, 64});
  v1.eval();
  v15.eval();
  // Blocks begin as their shortcut alone (the last scale is 0), which is the same in both.
  EXPECT_TRUE(at::allclose(v1.forward(images), v15.forward(images)));
  for (const Network* network : {&v1, &v15}) {
    for (const auto& item : network->named_parameters()) {
      if (item.key().ends_with("bn3.weight")) item.value().detach().fill_(1);
    }
  }
  EXPECT_FALSE(at::allclose(v1.forward(images), v15.forward(images)));
}

TEST(Network, training_moves_the_running_statistics_and_evaluation_does_not) {
  Network network(resnet({.depth = 14, .classes = 10}), 1);
  const std::vector<at::Tensor> fresh = copies_of(network.buffers());
  network.eval();
  static_cast<void>(network.forward(at::rand({2, 3, 32, 32})));
  EXPECT_TRUE(equal_buffers(network.buffers(), fresh));
  network.train();
  static_cast<void>(network.forward(at::rand({2, 3, 32, 32})));
  EXPECT_FALSE(equal_buffers(network.buffers(), fresh));
}

TEST(Network, drops_out_while_training_by_its_key_or_by_libtorchs_generator) {
  Network network(cifar10_cnn({}), 1);
  const at::Tensor images = at::rand({2, 3, 32, 32});
  const DropoutKey key{.seed = 1, .step = 7, .first_position = 0};
  EXPECT_TRUE(at::equal(network.forward(images, &key), network.forward(images, &key)));
  const DropoutKey other{.seed = 1, .step = 8, .first_position = 0};
  EXPECT_FALSE(at::equal(network.forward(images, &key), network.forward(images, &other)));
  EXPECT_FALSE(at::equal(network.forward(images), network.forward(images)));
  network.eval();
  EXPECT_TRUE(at::equal(network.forward(images, &key), network.forward(images)));
}

TEST(Network, dropout_is_the_same_whichever_rank_computes_the_sample) {
  Network network(cifar10_cnn({}), 1);
  const at::Tensor images = at::rand({4, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
  const DropoutKey whole{.seed = 1, .step = 7, .first_position = 0};
  const DropoutKey second_half{.seed = 1, .step = 7, .first_position = 2};
  EXPECT_TRUE(at::allclose(network.forward(images, &whole).narrow(0, 2, 2),
                           network.forward(images.narrow(0, 2, 2), &second_half), 1e-4, 1e-5));
}

}  // namespace
}  // namespace gyre::models
