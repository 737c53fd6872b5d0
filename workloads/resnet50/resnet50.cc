#include "workloads/resnet50/resnet50.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/loader.h"
#include "gyre/models/network.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/sgd.h"
#include "workloads/resnet50/image_data.h"
#include "workloads/training/image_samples.h"

namespace gyre::resnet50 {
namespace {

constexpr const char* kProgram = "gyre-resnet50";
constexpr std::array<std::string_view, 3> kMetrics = {"loss", "accuracy", "top5"};
constexpr std::int64_t kNoIndexIgnored = -100;  // libtorch's default.
constexpr double kReferenceBatch = 256;
constexpr double kDecay = 0.1;

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, kNoIndexIgnored, smoothing);
}

class ResnetTask final : public training::Task {
 public:
  ResnetTask(const Options& options, const models::Layers& layers)
      : options_(options),
        network_(layers, options.seed),
        parameters_(train::named_parameters(network_)),
        buffers_(train::named_buffers(network_)) {}

  const train::NamedTensors& parameters() const override { return parameters_; }
  const train::NamedTensors& buffers() const override { return buffers_; }
  std::span<const std::string_view> metrics() const override { return kMetrics; }

  std::vector<double> train(const data::Batch& batch, std::uint64_t /*step*/, double scale) override {
    const auto [images, labels] = samples_of(batch);
    network_.train();
    const at::Tensor logits = network_.forward(images);
    const at::Tensor loss = loss_of(logits, labels, options_.label_smoothing);
    (loss * scale).backward();
    return metrics_of(loss.item<double>(), logits.detach(), labels);
  }

  std::vector<double> evaluate(const data::Batch& batch) override {
    const auto [images, labels] = samples_of(batch);
    network_.eval();
    const at::Tensor logits = network_.forward(images);
    return metrics_of(loss_of(logits, labels, 0).item<double>(), logits, labels);
  }

 private:
  struct Samples {
    at::Tensor images;  // [n, 3, size, size], in the loader's memory, channels last.
    at::Tensor labels;
  };

  /// Error(kInvalidArgument) for a label that the network has no class for.
  Samples samples_of(const data::Batch& batch) const {
    const auto count = static_cast<std::int64_t>(batch.samples().counted);
    const at::Tensor images =
        at::from_blob(batch.field(training::kImage).data(), {count, options_.image_size, options_.image_size, 3});
    const at::Tensor labels =
        at::from_blob(batch.field(training::kLabel).data(), {count}, at::TensorOptions(at::kLong));
    training::check_labels(labels, options_.network.classes);
    return {images.permute({0, 3, 1, 2}), labels};
  }

  std::vector<double> metrics_of(double loss, const at::Tensor& logits, const at::Tensor& labels) const {
    const std::int64_t most = std::min<std::int64_t>(5, options_.network.classes);
    const at::Tensor best = std::get<1>(logits.topk(most, 1));
    const at::Tensor hits = best.eq(labels.unsqueeze(1));
    return {loss, static_cast<double>(hits.select(1, 0).sum().item<std::int64_t>()),
            static_cast<double>(hits.sum().item<std::int64_t>())};
  }

  const Options& options_;
  models::Network network_;
  train::NamedTensors parameters_;
  train::NamedTensors buffers_;
};

/// Scale and shift of batch normalisation have one dimension, as has fc's bias, which decays.
std::vector<train::DecayedParameter> decayed(const train::NamedTensors& parameters, double weight_decay) {
  std::vector<train::DecayedParameter> result;
  for (const train::NamedTensor& parameter : parameters) {
    const bool decays = parameter.tensor.dim() > 1 || parameter.name.starts_with("fc.");
    result.push_back({parameter, decays ? weight_decay : 0.0});
  }
  return result;
}

train::Sgd make_optimizer(const train::NamedTensors& parameters, const Options& options) {
  return {
      decayed(parameters, options.weight_decay),
      {.momentum = options.momentum, .nesterov = options.nesterov, .convention = train::MomentumConvention::kPytorch}};
}

train::EpochSchedule schedule_of(const Options& options, int ranks) {
  const double peak =
      options.learning_rate * static_cast<double>(options.batch_size) * static_cast<double>(ranks) / kReferenceBatch;
  train::EpochSchedule schedule{.base = std::min(options.learning_rate, peak),
                                .peak = peak,
                                .warmup_epochs = options.warmup_epochs,
                                .warmup_unit = train::WarmupUnit::kStep};
  double factor = 1;
  for (const std::uint64_t epoch : options.decay_epochs) schedule.factors[epoch] = factor *= kDecay;
  return schedule;
}

data::Shuffling shuffling_of(const data::SampleSet& images, const Options& options) {
  return images.advice_on_full_shuffle(options.memory_budget_bytes).empty() ? data::Shuffling::kFull
                                                                            : data::Shuffling::kBlocks;
}

data::LoaderOptions loader_options(const Options& options, const data::SampleSet& images, bool training,
                                   const train::GradientExchange& exchange) {
  return {.sampling = {.count = images.count(),
                       .seed = options.seed,
                       .shuffling = training ? shuffling_of(images, options) : data::Shuffling::kNone,
                       .ranks = exchange.size(),
                       .batch_per_rank = options.batch_size,
                       // Batch normalisation needs whole batches.
                       .remainder = training ? data::Remainder::kDrop : data::Remainder::kPad},
          .rank = exchange.rank(),
          .threads = options.threads,
          .memory_budget_bytes = options.memory_budget_bytes};
}

training::TrainerOptions trainer_options(const Options& options, const ImageData& images, int ranks) {
  training::TrainerOptions result{.run = {.program = kProgram,
                                          .checkpoint_dir = options.output_dir / "checkpoints",
                                          .tensorboard_dir = options.output_dir / "tensorboard",
                                          .talks = options.verbose > 0,
                                          .recipe = result_options(options, ranks),
                                          .classes = images.train->classes(),
                                          .files = images.files},
                                  .samples = "images",
                                  .epochs = options.epochs,
                                  .verbose = options.verbose,
                                  .check_replicas = options.check_replicas};
  training::apply(options, kMetrics, result);
  result.run.same.push_back({.key = "batch_per_rank",
                             .name = "the batch of a rank",
                             .value = fmt::format("{}", options.batch_size),
                             .meaning = "batch normalisation then takes its statistics from batches of another size"});
  if (options.target_accuracy) {
    result.target = {.metric = kAccuracy, .value = *options.target_accuracy, .at_most = false};
  }
  return result;
}

std::string name_of(const models::ResnetOptions& network) {
  return fmt::format("ResNet-{} {}", network.depth, network.version == models::ResnetVersion::kV1 ? "v1" : "v1.5");
}

void announce(const Options& options, std::int64_t parameters, const ImageData& images,
              const train::EpochSchedule& schedule, int ranks) {
  fmt::print("{}: {} training images, {} validation images, {} classes, from {}\n", kProgram, images.train->count(),
             images.validation->count(), options.network.classes, options.data_dir.string());
  for (const std::string& remark : images.remarks) fmt::print("{}\n", remark);
  fmt::print("{}, {} parameters; {} {} x batch {} of {}x{}; SGD, learning rate {}{}; seed {}; output in {}\n",
             name_of(options.network), parameters, ranks, ranks == 1 ? "rank" : "ranks", options.batch_size,
             options.image_size, options.image_size, schedule.peak,
             schedule.warmup_epochs > 0 ? fmt::format(" after {} epochs of warm-up", schedule.warmup_epochs) : "",
             options.seed, options.output_dir.string());
  if (shuffling_of(*images.train, options) == data::Shuffling::kBlocks) {
    fmt::print("the images are shuffled in blocks: {}\n",
               images.train->advice_on_full_shuffle(options.memory_budget_bytes));
  }
  std::fflush(stdout);
}

}  // namespace

training::Outcome run_training(Options options, train::GradientExchange& exchange) {
  const ImageData images = open_images(options);
  options.network.classes = images.classes;
  const models::Layers layers = models::resnet(options.network);
  check_batch(options.batch_size, options.image_size);
  data::Loader train(images.train, images.train_fields, loader_options(options, *images.train, true, exchange));
  data::Loader validation(images.validation, images.validation_fields,
                          loader_options(options, *images.validation, false, exchange));
  ResnetTask task(options, layers);
  train::Sgd optimizer = make_optimizer(task.parameters(), options);
  const train::EpochSchedule schedule = schedule_of(options, exchange.size());
  if (exchange.rank() == 0 && options.verbose > 0) {
    announce(options, models::parameter_count(layers), images, schedule, exchange.size());
  }
  training::Trainer trainer(trainer_options(options, images, exchange.size()), exchange, task, optimizer, schedule,
                            {&train}, validation);
  return trainer.run();
}

}  // namespace gyre::resnet50
