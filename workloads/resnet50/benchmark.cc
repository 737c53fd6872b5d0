#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/models/network.h"
#include "gyre/train/sgd.h"
#include "workloads/resnet50/resnet50.h"
#include "workloads/training/report.h"

namespace gyre::resnet50 {
namespace {

constexpr double kLearningRate = 0.01;
constexpr double kNinetyFivePercent = 1.96;  // Standard deviations on either side, as Horovod's benchmark has it.
constexpr double kMadOfDeviation = 1.4826;   // A normal distribution's, as tf_cnn_benchmarks' jitter has it.

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += (value - mean_of(values)) * (value - mean_of(values));
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

class Benchmark {
 public:
  Benchmark(const Options& options, train::GradientExchange& exchange)
      : options_(options),
        exchange_(exchange),
        network_(options.layers(), options.seed),
        parameters_(train::named_parameters(network_)),
        optimizer_(without_decay(parameters_), {.momentum = options.momentum}) {
    at::Generator random = at::detail::createCPUGenerator(options.seed);
    const auto count = static_cast<std::int64_t>(options.batch_size);
    images_ = at::randn({count, 3, options.image_size, options.image_size}, random)
                  .contiguous(at::MemoryFormat::ChannelsLast);
    labels_ = at::randint(options.classes, {count}, random, at::TensorOptions(at::kLong));
  }

  void run() {
    exchange_.attach(parameters_);
    exchange_.broadcast(parameters_);
    const bool leader = exchange_.rank() == 0;
    if (leader) begin();
    for (std::uint64_t i = 0; i < options_.warmup_batches; ++i) step();
    if (leader) training::say(horovod() ? "Running benchmark..." : "Step\tImg/sec\ttotal_loss");
    for (std::uint64_t i = 0; i < options_.iterations; ++i) iterate(i);
    std::vector<double> rates = {mean_of(rates_)};
    exchange_.sum(rates);
    if (leader) end(rates[0]);
  }

 private:
  static std::vector<train::DecayedParameter> without_decay(const train::NamedTensors& parameters) {
    std::vector<train::DecayedParameter> result;
    for (const train::NamedTensor& parameter : parameters) result.push_back({parameter, 0.0});
    return result;
  }

  bool horovod() const { return options_.lines == BenchmarkLines::kHorovod; }

  void begin() const {
    training::say(fmt::format("Model: resnet{}{}\nBatch size: {}", options_.depth,
                              options_.version == models::ResnetVersion::kV1 ? "" : "_v1.5", options_.batch_size));
    training::say(fmt::format("Number of CPUs: {}\nRunning warmup...", exchange_.size()));
  }

  double step() {
    exchange_.zero_gradients();
    const at::Tensor loss = at::cross_entropy_loss(network_.forward(images_), labels_);
    loss.backward();
    exchange_.synchronize();
    optimizer_.step(kLearningRate);
    return loss.item<double>();
  }

  void iterate(std::uint64_t number) {
    const auto began = SteadyClock::now();
    double loss = 0;
    for (std::uint64_t i = 0; i < options_.batches_per_iteration; ++i) loss = step();
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - began).count();
    rates_.push_back(static_cast<double>(options_.batch_size * options_.batches_per_iteration) / seconds);
    if (exchange_.rank() != 0) return;
    if (horovod()) {
      training::say(fmt::format("Iter #{}: {:.1f} img/sec per CPU", number, rates_.back()));
      return;
    }
    std::vector<double> distances;
    for (const double rate : rates_) distances.push_back(std::abs(rate - median_of(rates_)));
    const auto ranks = static_cast<double>(exchange_.size());
    training::say(fmt::format("{}\timages/sec: {:.1f} +/- {:.1f} (jitter = {:.1f})\t{:.3f}",
                              (number + 1) * options_.batches_per_iteration, ranks * mean_of(rates_),
                              ranks * deviation_of(rates_) / std::sqrt(static_cast<double>(rates_.size())),
                              ranks * kMadOfDeviation * median_of(distances), loss));
  }

  /// `total` of all ranks.
  void end(double total) const {
    if (horovod()) {
      const double spread = kNinetyFivePercent * deviation_of(rates_);
      training::say(fmt::format("Img/sec per CPU: {:.1f} +-{:.1f}", mean_of(rates_), spread));
      training::say(fmt::format("Total img/sec on {} CPU(s): {:.1f} +-{:.1f}", exchange_.size(), total,
                                exchange_.size() * spread));
      return;
    }
    const std::string rule(64, '-');
    training::say(fmt::format("{}\ntotal images/sec: {:.2f}\n{}", rule, total, rule));
  }

  const Options& options_;
  train::GradientExchange& exchange_;
  models::Network network_;
  train::NamedTensors parameters_;
  train::Sgd optimizer_;
  at::Tensor images_;
  at::Tensor labels_;
  std::vector<double> rates_;  // Images per second of this rank, by iteration.
};

}  // namespace

training::Outcome run_benchmark(const Options& options, train::GradientExchange& exchange) {
  Benchmark(options, exchange).run();
  return {};
}

}  // namespace gyre::resnet50
