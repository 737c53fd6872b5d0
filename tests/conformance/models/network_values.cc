// What a network of gyre::models computes, for models_table_test.py, which compares it with Python's. The first
// argument says which network, with which seed; the second is a file with its "input" and with "weights", by which its
// answers are multiplied for a loss; the third is written: the answers, and of each tensor the first values, the
// gradient, and the values afterwards.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/cosmoflow.h"
#include "gyre/models/network.h"
#include "gyre/models/resnet.h"
#include "gyre/models/vgg16.h"
#include "gyre/train/checkpoint.h"
#include "gyre/train/tensors.h"

namespace {

using namespace gyre;
using nlohmann::json;

models::Layers layers_of(const json& chosen) {
  const std::string name = chosen.at("network");
  const json& given = chosen.at("arguments");
  if (name == "Cifar10Cnn") {
    return models::cifar10_cnn({.image_size = given.at("image_size"), .classes = given.at("classes")});
  }
  if (name == "Vgg16") return models::vgg16({.image_size = given.at("image_size"), .classes = given.at("classes")});
  if (name == "ResNet") {
    const bool v1 = given.at("version") == "v1";
    return models::resnet({.depth = given.at("depth"),
                           .version = v1 ? models::ResnetVersion::kV1 : models::ResnetVersion::kV15,
                           .classes = given.at("classes")});
  }
  return models::cosmoflow({.size = given.at("size"),
                            .channels = given.at("channels"),
                            .convolutions = given.at("convolutions"),
                            .conv_size = given.at("conv_size"),
                            .kernel_size = given.at("kernel_size"),
                            .fc1_size = given.at("fc1_size"),
                            .fc2_size = given.at("fc2_size"),
                            .targets = given.at("targets"),
                            .dropout = given.at("dropout")});
}

at::Tensor tensor_of(const train::Checkpoint& file, const std::string& name) {
  const train::CheckpointTensor& saved = file.tensor(name);
  const at::Tensor tensor = at::empty(saved.shape);
  std::memcpy(tensor.mutable_data_ptr(), saved.bytes.data(), saved.bytes.size());
  return tensor;
}

void run(const json& chosen, const std::string& input, const std::string& output) {
  const train::Checkpoint given = train::load_checkpoint(input);
  models::Network network(layers_of(chosen), chosen.at("seed").get<std::uint64_t>());
  network.train(chosen.at("training").get<bool>());
  train::NamedTensors found;
  const auto add = [&](const std::string& kind, const std::string& name, const at::Tensor& tensor) {
    found.push_back({fmt::format("{}/{}", kind, name), tensor.detach().clone().contiguous()});
  };
  const train::NamedTensors tensors = train::named_tensors(network);
  for (const auto& [name, tensor] : tensors) add("first", name, tensor);
  const at::Tensor answers = network.forward(tensor_of(given, "input"));
  (answers * tensor_of(given, "weights")).sum().backward();
  add("answers", "all", answers);
  for (const auto& [name, tensor] : tensors) {
    add("after", name, tensor);
    if (tensor.grad().defined()) add("gradient", name, tensor.grad());
  }
  train::Checkpoint checkpoint;
  train::add_to_checkpoint(checkpoint, found);
  write_file_atomically(output, train::encode_checkpoint(checkpoint));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) return 2;
    run(json::parse(argv[1]), argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
