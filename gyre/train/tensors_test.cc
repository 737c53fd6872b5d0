// The pieces of training that use libtorch, held to numbers computed without it. One file, because each that includes
// libtorch takes long to compile.
#include "gyre/train/tensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/train/gradient_exchange.h"
#include "gyre/train/rmsprop.h"

namespace gyre::train {
namespace {

using testing::HasSubstr;

/// Keras' formulas on plain doubles: an independent second opinion.
struct PlainRmsprop {
  std::vector<double> parameters;
  std::vector<double> mean_squares = std::vector<double>(parameters.size(), 0.0);
  int iteration = 0;

  void step(const std::vector<double>& gradients, double learning_rate, double decay) {
    const double rate = learning_rate * (1.0 / (1.0 + decay * iteration++));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      mean_squares[i] = 0.9 * mean_squares[i] + 0.1 * gradients[i] * gradients[i];
      parameters[i] -= rate * gradients[i] / (std::sqrt(mean_squares[i]) + 1e-7);
    }
  }
};

TEST(Rmsprop, follows_keras_formulas) {
  constexpr std::uint64_t kSeed = 3;
  Random random(kSeed);
  constexpr std::size_t kCount = 100;
  std::vector<double> start;
  for (std::size_t i = 0; i < kCount; ++i) start.push_back(random.uniform(-1, 1));
  const at::Tensor parameter = at::tensor(start, at::kDouble);
  PlainRmsprop expected{.parameters = start};
  Rmsprop optimizer({{"weight", parameter}}, {.decay = 0.01});
  for (int step = 0; step < 50; ++step) {
    std::vector<double> gradient;
    // Small gradients too: there epsilon's place, outside the root, decides.
    for (std::size_t i = 0; i < kCount; ++i) gradient.push_back(random.uniform(-1, 1) * (i % 2 == 0 ? 1.0F : 1e-7F));
    parameter.mutable_grad() = at::tensor(gradient, at::kDouble);
    optimizer.step(0.001);
    expected.step(gradient, 0.001, 0.01);
  }
  EXPECT_EQ(optimizer.iteration(), 50U);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(parameter[static_cast<std::int64_t>(i)].item<double>(), expected.parameters[i], 1e-12);
  }
}

TEST(Rmsprop, goes_on_from_saved_state_as_if_it_had_never_stopped) {
  const auto gradient = [](int step) { return at::full({4}, 0.1 * (step + 1), at::kFloat); };
  const at::Tensor straight = at::ones({4});
  Rmsprop without_stop({{"w", straight}}, {.decay = 0.1});
  const at::Tensor stopped = at::ones({4});
  auto first = std::make_unique<Rmsprop>(NamedTensors{{"w", stopped}}, RmspropOptions{.decay = 0.1});
  for (int step = 0; step < 4; ++step) {
    straight.mutable_grad() = gradient(step);
    without_stop.step(0.01);
    if (step == 2) {
      auto second = std::make_unique<Rmsprop>(NamedTensors{{"w", stopped}}, RmspropOptions{.decay = 0.1});
      Checkpoint checkpoint;
      add_to_checkpoint(checkpoint, first->state());
      restore_from_checkpoint(decode_checkpoint(encode_checkpoint(checkpoint), "test"), second->state());
      second->set_iteration(first->iteration());
      first = std::move(second);
    }
    stopped.mutable_grad() = gradient(step);
    first->step(0.01);
  }
  EXPECT_TRUE(at::equal(straight, stopped));
}

TEST(Tensors, a_hash_sees_bits_names_and_shapes) {
  const at::Tensor zeros = at::zeros({2, 3});
  const std::uint64_t hash = hash_tensors({{"w", zeros}});
  EXPECT_EQ(hash, hash_tensors({{"w", at::zeros({2, 3})}}));
  EXPECT_NE(hash, hash_tensors({{"v", zeros}}));
  EXPECT_NE(hash, hash_tensors({{"w", zeros.view({3, 2})}}));
  EXPECT_NE(hash, hash_tensors({{"w", -zeros}})) << "minus zero is equal, but not the same bits";
}

TEST(Tensors, a_checkpoint_of_another_network_is_refused_with_both_shapes) {
  const at::Tensor saved = at::zeros({2, 3});
  Checkpoint checkpoint;
  add_to_checkpoint(checkpoint, {{"w", saved}});
  try {
    restore_from_checkpoint(checkpoint, {{"w", at::zeros({3, 2})}});
    FAIL() << "a different shape was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("float32 [2, 3]"), HasSubstr("float32 [3, 2]")));
  }
}

/// Pretends to be one of three ranks of which the last computes something else: three values of each rank are summed,
/// of which the first says that it lives.
class UnequalRanks final : public GradientExchange {
 public:
  int rank() const override { return 0; }
  int size() const override { return 3; }
  void attach(const NamedTensors& /*parameters*/) override {}
  void zero_gradients() override {}
  void synchronize() override {}
  void broadcast(const NamedTensors& /*tensors*/) override {}
  void sum(std::span<double> values) override {
    std::copy_n(values.begin(), 3, values.begin() + 3);
    values[6] = 1;
    values[8] = 1;
  }
};

TEST(GradientExchange, replicas_that_differ_are_named) {
  LocalExchange alone;
  EXPECT_NO_THROW(check_replicas(alone, 0x123456789abcdef0, "after step 1"));
  UnequalRanks ranks;
  try {
    check_replicas(ranks, 0x123456789abcdef0, "after step 5");
    FAIL() << "a different replica was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("after step 5"), HasSubstr("rank 2 has 0000000000000001"),
                                             HasSubstr("rank 0 has 123456789abcdef0")));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("rank 1")));
  }
}

}  // namespace
}  // namespace gyre::train
