#include "workloads/bench_step/models.h"

#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <array>

#include "gyre/base/error.h"

namespace gyre::bench_step {

namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t window, std::int64_t stride,
                       std::int64_t padding, bool bias) {
  return nn::Conv2d(nn::Conv2dOptions(inputs, outputs, window).stride(stride).padding(padding).bias(bias));
}

/// ResNet's block of three convolutions, the stride on the 3x3 one (v1.5).
class BottleneckImpl : public nn::Module {
 public:
  BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride)
      : convolution1_(convolution(inputs, width, 1, 1, 0, false)),
        norm1_(width),
        convolution2_(convolution(width, width, 3, stride, 1, false)),
        norm2_(width),
        convolution3_(convolution(width, 4 * width, 1, 1, 0, false)),
        norm3_(4 * width) {
    register_module("conv1", convolution1_);
    register_module("bn1", norm1_);
    register_module("conv2", convolution2_);
    register_module("bn2", norm2_);
    register_module("conv3", convolution3_);
    register_module("bn3", norm3_);
    if (stride == 1 && inputs == 4 * width) return;
    downsample_ = nn::Sequential(convolution(inputs, 4 * width, 1, stride, 0, false), nn::BatchNorm2d(4 * width));
    register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = norm1_(convolution1_(x)).relu();
    y = norm2_(convolution2_(y)).relu();
    y = norm3_(convolution3_(y));
    return (y + (downsample_->is_empty() ? x : downsample_->forward(x))).relu();
  }

 private:
  nn::Conv2d convolution1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d convolution2_;
  nn::BatchNorm2d norm2_;
  nn::Conv2d convolution3_;
  nn::BatchNorm2d norm3_;
  nn::Sequential downsample_;
};
TORCH_MODULE(Bottleneck);

nn::Sequential resnet(const std::array<int, 4>& blocks_per_stage, std::int64_t outputs) {
  nn::Sequential network(convolution(3, 64, 7, 2, 3, false), nn::BatchNorm2d(64), nn::ReLU(),
                         nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t inputs = 64;
  std::int64_t width = 64;
  for (std::size_t stage = 0; stage < blocks_per_stage.size(); ++stage, width *= 2) {
    for (int block = 0; block < blocks_per_stage[stage]; ++block) {
      network->push_back(Bottleneck(inputs, width, stage > 0 && block == 0 ? 2 : 1));
      inputs = 4 * width;
    }
  }
  network->push_back(nn::AdaptiveAvgPool2d(1));
  network->push_back(nn::Flatten());
  network->push_back(nn::Linear(inputs, outputs));
  return network;
}

nn::Sequential vgg16(std::int64_t image_size, std::int64_t outputs) {
  constexpr std::array<std::array<std::int64_t, 2>, 5> kStages = {{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}};
  nn::Sequential network;
  std::int64_t inputs = 3;
  for (const auto& [width, convolutions] : kStages) {
    for (std::int64_t i = 0; i < convolutions; ++i) {
      network->push_back(convolution(inputs, width, 3, 1, 1, true));
      network->push_back(nn::ReLU());
      inputs = width;
    }
    network->push_back(nn::MaxPool2d(2));
  }
  const std::int64_t side = image_size / 32;
  network->push_back(nn::Flatten());
  for (const std::int64_t features : {inputs * side * side, std::int64_t{4096}}) {
    network->push_back(nn::Linear(features, 4096));
    network->push_back(nn::ReLU());
    network->push_back(nn::Dropout());
  }
  network->push_back(nn::Linear(4096, outputs));
  return network;
}

nn::Sequential cifar10(std::int64_t image_size, std::int64_t outputs) {
  const std::int64_t side = ((image_size - 2) / 2 - 2) / 2;
  return nn::Sequential(convolution(3, 32, 3, 1, 1, true), nn::ReLU(), convolution(32, 32, 3, 1, 0, true), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Dropout(0.25), convolution(32, 64, 3, 1, 1, true), nn::ReLU(),
                        convolution(64, 64, 3, 1, 0, true), nn::ReLU(), nn::MaxPool2d(2), nn::Dropout(0.25),
                        nn::Flatten(), nn::Linear(64 * side * side, 512), nn::ReLU(), nn::Dropout(0.5),
                        nn::Linear(512, outputs));
}

at::Tensor scaled_tanh(const at::Tensor& x) { return 1.2 * x.tanh(); }

nn::Sequential cosmoflow(std::int64_t image_size, std::int64_t outputs) {
  const auto leaky = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.3)); };
  nn::Sequential network;
  std::int64_t inputs = 4;
  for (const std::int64_t width : {32, 64, 128, 256, 512}) {
    network->push_back(nn::Conv3d(nn::Conv3dOptions(inputs, width, 3).padding(1)));
    network->push_back(leaky());
    network->push_back(nn::MaxPool3d(2));
    inputs = width;
  }
  const std::int64_t side = image_size / 32;
  network->push_back(nn::Flatten());
  std::int64_t features = inputs * side * side * side;
  for (const std::int64_t width : {128, 64}) {
    network->push_back(nn::Linear(features, width));
    network->push_back(leaky());
    network->push_back(nn::Dropout());
    features = width;
  }
  network->push_back(nn::Linear(features, outputs));
  network->push_back(nn::Functional(scaled_tanh));
  return network;
}

}  // namespace

nn::Sequential make_step_model(const std::string& name, std::int64_t image_size, std::int64_t outputs) {
  if (name == "resnet50") return resnet({3, 4, 6, 3}, outputs);
  if (name == "resnet101") return resnet({3, 4, 23, 3}, outputs);
  if (name == "vgg16") return vgg16(image_size, outputs);
  if (name == "cifar10") return cifar10(image_size, outputs);
  if (name == "cosmoflow") return cosmoflow(image_size, outputs);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no model '{}'", name));
}

std::vector<std::int64_t> input_shape(const std::string& name, std::int64_t batch_size, std::int64_t image_size) {
  if (name == "cosmoflow") return {batch_size, 4, image_size, image_size, image_size};
  return {batch_size, 3, image_size, image_size};
}

}  // namespace gyre::bench_step
