// The servers' optimizers have the names of torch.optim's: this holds them to torch's own, step by step.
#include "gyre/params/update_rule.h"

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>

#include "gyre/base/random.h"

namespace gyre::train {
namespace {

using params::Rule;
using params::UpdateOptions;
using Optimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

constexpr std::int64_t kValues = 1003;  // No multiple of a vector.
constexpr int kSteps = 20;
constexpr double kRate = 0.01;

struct Case {
  std::string name;
  UpdateOptions options;
  Optimizer torch;
  float relative = 0;  ///< How far parameters may be apart after kSteps, relative to the largest; 0: equal bits.
};

template <typename Algorithm, typename Options>
Optimizer make(Options options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Algorithm>(std::move(parameters), options);
  };
}

std::vector<Case> cases() {
  using namespace torch::optim;
  return {
      {"sgd", {}, make<SGD>(SGDOptions(kRate))},
      {"sgd with weight decay", {.weight_decay = 0.1}, make<SGD>(SGDOptions(kRate).weight_decay(0.1)), 1e-6F},
      {"momentum", {.momentum = 0.9}, make<SGD>(SGDOptions(kRate).momentum(0.9)), 1e-6F},
      {"dampening",
       {.momentum = 0.9, .dampening = 0.3},
       make<SGD>(SGDOptions(kRate).momentum(0.9).dampening(0.3)),
       1e-6F},
      {"nesterov",
       {.momentum = 0.9, .nesterov = true},
       make<SGD>(SGDOptions(kRate).momentum(0.9).nesterov(true)),
       1e-6F},
      {"rmsprop", {.rule = Rule::kRmsprop}, make<RMSprop>(RMSpropOptions(kRate)), 2e-6F},
      {"rmsprop, centered with momentum",
       {.rule = Rule::kRmsprop, .momentum = 0.5, .centered = true},
       make<RMSprop>(RMSpropOptions(kRate).momentum(0.5).centered(true)),
       2e-6F},
      {"adagrad",
       {.rule = Rule::kAdagrad, .epsilon = 1e-10, .lr_decay = 0.1, .initial_accumulator = 0.5},
       make<Adagrad>(AdagradOptions(kRate).lr_decay(0.1).initial_accumulator_value(0.5)),
       1e-6F},
      {"adam", {.rule = Rule::kAdam}, make<Adam>(AdamOptions(kRate)), 2e-6F},
      {"adam, amsgrad with weight decay",
       {.rule = Rule::kAdam, .weight_decay = 0.1, .amsgrad = true},
       make<Adam>(AdamOptions(kRate).weight_decay(0.1).amsgrad(true)),
       2e-6F},
      {"adamw",
       {.rule = Rule::kAdamw, .weight_decay = 0.01},
       make<AdamW>(AdamWOptions(kRate).weight_decay(0.01)),
       2e-6F},
  };
}

at::Tensor random_values(std::uint64_t stream) {
  at::Tensor values = at::empty({kValues});
  Random random(3, stream);
  for (std::int64_t i = 0; i < kValues; ++i) values.mutable_data_ptr<float>()[i] = random.uniform(-1, 1);
  return values;
}

std::span<float> span_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

TEST(UpdateRule, steps_as_torchs_optimizers_do) {
  for (const Case& one : cases()) {
    at::Tensor theirs = random_values(0).requires_grad_(true);
    at::Tensor ours = random_values(0);
    const auto optimizer = one.torch({theirs});
    UpdateOptions options = one.options;
    options.rate = kRate;
    const params::UpdateRule rule(options);
    std::vector<at::Tensor> slots;
    for (std::size_t slot = 0; slot < rule.slots(); ++slot) {
      slots.push_back(at::full({kValues}, rule.initial_slot_value(slot)));
    }
    for (int step = 1; step <= kSteps; ++step) {
      const at::Tensor gradient = random_values(static_cast<std::uint64_t>(step));
      theirs.mutable_grad() = gradient.clone();
      optimizer->step();
      std::vector<std::span<float>> state;
      for (const at::Tensor& slot : slots) state.push_back(span_of(slot));
      rule.apply(span_of(ours), span_of(gradient), state, static_cast<std::uint64_t>(step));
    }
    const auto apart = (theirs.detach() - ours).abs().max().item<float>() / ours.abs().max().item<float>();
    EXPECT_LE(apart, one.relative) << one.name;
  }
}

}  // namespace
}  // namespace gyre::train
