// gyre-bench-step: one rank of `gyre bench step --via cpp`, which starts it: training steps of a model on made-up data,
// alone and with exchange in turns of several steps, so that a noisy minute hits both alike. Rank 0 writes one JSON
// object.
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/cosmoflow.h"
#include "gyre/models/network.h"
#include "gyre/models/resnet.h"
#include "gyre/models/vgg16.h"
#include "gyre/train/distributed_optimizer.h"
#include "gyre/train/libtorch_version.h"

namespace {

using namespace gyre;

struct Options {
  std::string model;
  std::int64_t image_size = 32;
  std::int64_t batch_size = 32;
  std::int64_t outputs = 10;
  std::string result;
  double seconds = 10;
  int fewest_rounds = 5;
};

void add_options(CLI::App& app, Options& options) {
  app.allow_extras();  // What the other programs of `gyre bench` need as well.
  app.add_option("--model", options.model)->required();
  app.add_option("--image-size", options.image_size, "Pixels per side")->check(CLI::Range(1, 4096));
  app.add_option("--batch", options.batch_size, "Samples per rank")->check(CLI::Range(1, 65536));
  app.add_option("--outputs", options.outputs)->check(CLI::Range(1, 65536));
  app.add_option("--result", options.result, "File for rank 0's figures")->required();
  app.add_option("--seconds", options.seconds)->check(CLI::NonNegativeNumber);
  app.add_option("--fewest-rounds", options.fewest_rounds)->check(CLI::PositiveNumber);
}

models::Layers layers_of(const Options& options) {
  const std::int64_t size = options.image_size;
  const std::int64_t classes = options.outputs;
  if (options.model == "resnet50") return models::resnet({.classes = classes});
  if (options.model == "resnet101") return models::resnet({.depth = 101, .classes = classes});
  if (options.model == "vgg16") return models::vgg16({.image_size = size, .classes = classes});
  if (options.model == "cifar10") return models::cifar10_cnn({.image_size = size, .classes = classes});
  if (options.model == "cosmoflow") return models::cosmoflow({.size = size, .targets = classes});
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no model '{}'", options.model));
}

std::vector<std::int64_t> input_shape(const Options& options) {
  const std::int64_t size = options.image_size;
  if (options.model == "cosmoflow") return {options.batch_size, 4, size, size, size};
  return {options.batch_size, 3, size, size};
}

/// A network with its optimizer, which exchanges where there is a runtime to exchange through.
class Trained {
 public:
  Trained(const Options& options, engine::Runtime* exchange_through)
      : network_(layers_of(options), 1),  // All ranks start from the same weights.
        sgd_(network_.parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum)) {
    if (exchange_through == nullptr) return;
    distributed_ = std::make_unique<train::DistributedOptimizer>(sgd_, network_, *exchange_through);
  }

  void step(const at::Tensor& inputs, const at::Tensor& targets) {
    if (distributed_) {
      distributed_->zero_grad();
    } else {
      sgd_.zero_grad();
    }
    torch::nn::functional::cross_entropy(network_.forward(inputs), targets).backward();
    if (distributed_) {
      distributed_->step();
    } else {
      sgd_.step();
    }
  }

  std::size_t size_bytes() const {
    std::size_t size = 0;
    for (const at::Tensor& parameter : network_.parameters()) size += parameter.nbytes();
    return size;
  }

 private:
  static constexpr double kLearningRate = 1e-3;
  static constexpr double kMomentum = 0.9;

  models::Network network_;
  torch::optim::SGD sgd_;
  std::unique_ptr<train::DistributedOptimizer> distributed_;
};

/// A training takes one step after the other: the first of a turn finds caches and memory as the other network has left
/// them, and does not count.
constexpr int kStepsOfATurn = 4;

/// Of steps, or of turns.
struct Costs {
  std::vector<double> time_us;       ///< Until the last rank has ended it.
  std::vector<double> processor_us;  ///< Of this rank, all threads.
};

double processor_us() { return static_cast<double>(std::clock()) / (static_cast<double>(CLOCKS_PER_SEC) / 1e6); }

double microseconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

/// Not empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Round by round: a machine that is slower for a while is so for both.
std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), std::minus<>());
  return result;
}

/// Collective: all ranks leave at nearly the same time.
void meet(engine::Runtime& runtime) {
  engine::Request barrier;
  barrier.name = "meet";
  static_cast<void>(runtime.engine().run(std::move(barrier)));
}

/// Collective. How often to repeat what takes `once_us`; rank 0's opinion counts.
int agreed_rounds(engine::Runtime& runtime, double once_us, const Options& options) {
  constexpr double kMostRounds = 2000;
  const double fewest = options.seconds == 0 ? 1 : options.fewest_rounds;
  double rounds = std::clamp(options.seconds * 1e6 / std::max(once_us, 1.0), fewest, std::max(kMostRounds, fewest));
  engine::Request request;
  request.name = "rounds";
  request.signature = {.kind = engine::OperationKind::kBroadcast, .type = engine::DataType::kFloat64, .shape = {1}};
  request.output = std::as_writable_bytes(std::span(&rounds, 1));
  request.input = request.output;
  static_cast<void>(runtime.engine().run(std::move(request)));
  return static_cast<int>(rounds);
}

nlohmann::json measure(engine::Runtime& runtime, const Options& options) {
  Trained alone(options, nullptr);
  Trained together(options, &runtime);
  torch::manual_seed(std::uint64_t{100} + static_cast<std::uint64_t>(runtime.rank()));
  const at::Tensor inputs = at::randn(input_shape(options));
  const at::Tensor targets = at::randint(options.outputs, {options.batch_size}, at::kLong);
  // All ranks begin a step together, and it is over when the last of them has ended it.
  const auto take_step = [&](Trained& trained, Costs& costs) {
    meet(runtime);
    const auto start = SteadyClock::now();
    const double start_of_processor_us = processor_us();
    trained.step(inputs, targets);
    meet(runtime);
    costs.time_us.push_back(microseconds_since(start));
    costs.processor_us.push_back(processor_us() - start_of_processor_us);
  };
  // Appends the median of its steps.
  const auto take_turn = [&](Trained& trained, Costs& costs) {
    Costs first;
    Costs others;
    for (int step = 0; step < kStepsOfATurn; ++step) take_step(trained, step == 0 ? first : others);
    costs.time_us.push_back(median(others.time_us));
    costs.processor_us.push_back(median(others.processor_us));
  };
  Costs warm_up;
  for (int step = 0; step < 2; ++step) {  // The first teaches the plan its order; the second takes its memory.
    take_step(alone, warm_up);
    take_step(together, warm_up);
  }
  const double last_us = warm_up.time_us[2] + warm_up.time_us[3];
  const int rounds = agreed_rounds(runtime, last_us * kStepsOfATurn, options);
  Costs alone_costs;
  Costs together_costs;
  for (int round = 0; round < rounds; ++round) {
    take_turn(alone, alone_costs);
    take_turn(together, together_costs);
  }
  return {{"bytes", together.size_bytes()},
          {"rounds", rounds},
          {"time_us", {{"alone", median(alone_costs.time_us)}, {"cpp", median(together_costs.time_us)}}},
          {"exposed_us", {{"cpp", median(differences(together_costs.time_us, alone_costs.time_us))}}},
          {"processor_us", {{"cpp", median(differences(together_costs.processor_us, alone_costs.processor_us))}}}};
}

void run(const Options& options) {
  const auto runtime = engine::Runtime::start_from_environment();
  try {
    const nlohmann::json result = measure(*runtime, options);
    if (runtime->rank() == 0) write_file_atomically(options.result, as_bytes(result.dump()));
    meet(*runtime);
  } catch (const std::exception& error) {
    // The other ranks learn the reason, not only that this one is gone.
    runtime->group().abort(
        Error(ErrorCode::kAborted, fmt::format("rank {} failed: {}", runtime->rank(), error.what())));
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of `gyre bench step --via cpp`, which starts it", "gyre-bench-step");
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    gyre::train::check_libtorch_version();
    run(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gyre-bench-step: {}\n", error.what());
    return 1;
  }
}
