// What a program does wrong with an optimizer is one error, which says what to do instead, and nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/train/distributed_optimizer.h"
#include "gyre/train/network_test_support.h"

namespace gyre::train {
namespace {

TEST(DistributedOptimizerFailureTest, different_models_are_found_before_the_first_step) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    torch::nn::Linear layer(3, runtime.rank() == 0 ? 4 : 5);
    torch::optim::SGD sgd(layer->parameters(), 0.1);
    try {
      const DistributedOptimizer optimizer(sgd, {{"weight", layer->weight}, {"bias", layer->bias}}, runtime);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      EXPECT_THAT(error.what(), testing::HasSubstr("'bias' float32 [4] on rank 0; 'bias' float32 [5] on rank 1"));
    }
  });
}

/// What `call` throws, which must be an Error.
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(DistributedOptimizerFailureTest, a_second_backward_before_the_step_is_refused) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    Network network(5);
    torch::optim::SGD sgd(tensors_of(network), 0.1);
    DistributedOptimizer optimizer(sgd, network.parameters(), runtime);
    for (int step = 0; step < 3; ++step) {
      network.loss(runtime.rank(), 0).backward();
      if (step == 1) {
        EXPECT_THAT(message_of([&] { network.loss(runtime.rank(), 0).backward(); }),
                    testing::HasSubstr("set ExchangeOptions::backward_passes_per_step"));
        EXPECT_THAT(message_of([&] { optimizer.step(); }), testing::HasSubstr("call zero_grad() and compute them"));
      } else {
        optimizer.step();
      }
      optimizer.zero_grad();
    }
  });
}

TEST(DistributedOptimizerFailureTest, gradients_are_left_alone_while_they_are_exchanged) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    Network network(5);
    torch::optim::SGD sgd(tensors_of(network), 0.1);
    DistributedOptimizer optimizer(sgd, network.parameters(), runtime);
    for (int step = 0; step < 2; ++step) {
      network.loss(runtime.rank(), 0).backward();
      EXPECT_THAT(message_of([&] { optimizer.zero_grad(); }), testing::HasSubstr("Call it before backward()"));
      optimizer.synchronize();
      optimizer.zero_grad();  // The step is left out.
      network.loss(runtime.rank(), 0).backward();
      {
        const at::NoGradGuard no_grad;
        tensors_of(network)[0].mutable_grad().mul_(0.5);
      }
      EXPECT_THAT(message_of([&] { optimizer.step(); }),
                  testing::HasSubstr("was changed between backward() and step()"));
      optimizer.zero_grad();
    }
  });
}

// Averaged gradients would never bring them together.
TEST(DistributedOptimizerFailureTest, ranks_that_start_with_other_weights_hear_of_it) {
  for (const bool one_allows : {false, true}) {
    engine::run_ranks(3, [&](engine::Runtime& runtime) {
      Network network(runtime.rank() == 1 ? 6 : 5);
      torch::optim::SGD sgd(tensors_of(network), 0.1);
      const bool allows = one_allows && runtime.rank() == 2;
      DistributedOptimizer optimizer(sgd, network.parameters(), runtime,
                                     {.unequal_replicas = allows ? UnequalReplicas::kAllow : UnequalReplicas::kError});
      network.loss(runtime.rank(), 0).backward();
      if (one_allows) return static_cast<void>(optimizer.step());
      EXPECT_THAT(message_of([&] { optimizer.step(); }), testing::HasSubstr("on rank 1 differs from rank 0"));
    });
  }
}

TEST(DistributedOptimizerFailureTest, lists_that_leave_out_a_parameter_or_repeat_a_name_are_refused) {
  engine::run_ranks(1, [](engine::Runtime& runtime) {
    torch::nn::Linear layer(2, 1);
    torch::optim::SGD sgd(layer->parameters(), 0.1);
    const auto wrap = [&](const NamedTensors& tensors) { const DistributedOptimizer one(sgd, tensors, runtime); };
    EXPECT_THAT(message_of([&] { wrap({{"weight", layer->weight}}); }), testing::HasSubstr("names all but 1"));
    EXPECT_THAT(message_of([&] { wrap({{"a", layer->weight}, {"a", layer->bias}}); }), testing::HasSubstr("'a'"));
    EXPECT_THAT(message_of([&] { const EngineExchange one(runtime, {.backward_passes_per_step = 0}); }),
                testing::HasSubstr("at least 1"));
  });
}

// One message that all ranks give; nothing has been changed by then.
TEST(DistributedOptimizerFailureTest, optimizers_that_differ_are_not_broadcast) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    torch::nn::Linear layer(2, 1);
    layer->weight.detach().fill_(runtime.rank());
    std::unique_ptr<torch::optim::Optimizer> inner;
    if (runtime.rank() == 0) {
      inner = std::make_unique<torch::optim::SGD>(layer->parameters(), 0.1);
    } else {
      inner = std::make_unique<torch::optim::Adam>(layer->parameters());
    }
    DistributedOptimizer optimizer(*inner, *layer, runtime);
    EXPECT_EQ(
        message_of([&] { optimizer.broadcast_parameters(); }),
        "broadcast of the optimizer's state: rank 0 has a torch::optim::SGD whose groups hold [2] parameters, rank "
        "1 has a torch::optim::Adam whose groups hold [2] parameters");
    EXPECT_EQ(layer->weight[0][0].item<float>(), static_cast<float>(runtime.rank()));
  });
}

/// Keeps something, which it cannot save.
class Forgetful final : public torch::optim::Optimizer {
 public:
  explicit Forgetful(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure /*closure*/) override { return {}; }
};

TEST(DistributedOptimizerFailureTest, a_state_that_cannot_be_saved_is_an_error_on_every_rank) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    torch::nn::Linear layer(2, 1);
    Forgetful forgetful(layer->parameters());
    DistributedOptimizer optimizer(forgetful, *layer, runtime);
    optimizer.broadcast_parameters();
    forgetful.state()[layer->bias.unsafeGetTensorImpl()] = std::make_unique<torch::optim::SGDParamState>();
    EXPECT_THAT(message_of([&] { optimizer.broadcast_parameters(); }),
                testing::HasSubstr("rank 0 cannot save the state"));
  });
}

TEST(DistributedOptimizerFailureTest, a_backward_between_synchronize_and_step_is_refused) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    Network network(5);
    torch::optim::SGD sgd(tensors_of(network), 0.1);
    DistributedOptimizer optimizer(sgd, network.parameters(), runtime);
    for (const bool wrong : {false, true}) {
      optimizer.zero_grad();
      network.loss(runtime.rank(), 0).backward();
      optimizer.synchronize();
      if (!wrong) continue;  // The step is left out.
      network.loss(runtime.rank(), 0).backward();
      EXPECT_THROW(optimizer.step(), Error);
      EXPECT_THROW(optimizer.synchronize(), Error);
    }
  });
}

// The engine writes to every tensor that was submitted: a caller that gets an error may free them at once.
TEST(DistributedOptimizerFailureTest, a_broadcast_that_is_refused_has_submitted_nothing) {
  engine::run_ranks(2, [](engine::Runtime& runtime) {
    EngineExchange exchange(runtime);
    const at::Tensor good = at::full({3}, runtime.rank() + 1.0);
    if (runtime.rank() == 1) {
      EXPECT_THROW(exchange.broadcast({{"good", good}, {"complex", at::zeros({4}, at::kComplexFloat)}}), Error);
      EXPECT_EQ(good[0].item<float>(), 2.0F);
    }
    exchange.broadcast({{"good", good}});
    EXPECT_EQ(good[0].item<float>(), 1.0F);
    at::Tensor slanted = at::full({2, 3}, runtime.rank() + 1.0).t();
    slanted[0][1] = 5.0 * runtime.rank() + 7;
    exchange.broadcast({{"slanted", slanted}});
    EXPECT_EQ(slanted[0][1].item<float>(), 7.0F);
    EXPECT_EQ(slanted[2][1].item<float>(), 1.0F);
  });
}

}  // namespace
}  // namespace gyre::train
