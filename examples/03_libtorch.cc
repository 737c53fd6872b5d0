// Fits a line with libtorch, on the ranks of a job: `gyre run -n 4 -- 03_libtorch`. docs/guide/cpp.md shows how to
// build it.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <iostream>

#include "gyre/engine/runtime.h"
#include "gyre/train/distributed_optimizer.h"
#include "gyre/train/libtorch_version.h"

int main() {
  gyre::train::check_libtorch_version();
  auto runtime = gyre::engine::Runtime::start_from_environment();  // what `gyre run` handed down
  torch::manual_seed(runtime->rank());                             // every rank has data, and first weights, of its own
  torch::nn::Linear model(3, 1);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  gyre::train::DistributedOptimizer optimizer(sgd, *model, *runtime);
  optimizer.broadcast_parameters();  // rank 0's weights, and its optimizer's state if it has any

  const torch::Tensor slope = torch::tensor({{1.0F}, {-2.0F}, {0.5F}});
  float loss_value = 0;
  for (int step = 0; step < 100; ++step) {
    const torch::Tensor inputs = torch::randn({32, 3});
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::mse_loss(model->forward(inputs), inputs.matmul(slope));
    loss.backward();  // gradients travel while it still runs
    optimizer.step();
    loss_value = loss.item<float>();
  }
  std::cout << "rank " << runtime->rank() << " of " << runtime->size() << ": "
            << (loss_value < 1e-3F ? "fitted" : "not fitted") << ", weights " << model->weight.sum().item<float>()
            << "\n";
  return loss_value < 1e-3F ? 0 : 1;
}
