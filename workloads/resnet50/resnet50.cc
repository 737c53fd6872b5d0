#include "workloads/resnet50/resnet50.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/loader.h"
#include "gyre/models/layer.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/sgd.h"
#include "workloads/training/image_samples.h"
#include "workloads/training/report.h"
#include "workloads/training/task.h"

namespace gyre::resnet50 {
namespace {

constexpr std::array kMetrics = {training::Metric{"loss"},
                                 training::Metric{.name = "accuracy", .lowest_is_best = false},
                                 training::Metric{.name = "top5", .lowest_is_best = false}};
constexpr std::int64_t kNoIndexIgnored = -100;  // libtorch's default.
constexpr std::int64_t kBestAnswers = 5;        // Of "top5".
constexpr double kReferenceBatch = 256;
constexpr double kDecay = 0.1;

data::ImageOptions image_options(const Options& options, bool augment) {
  const auto side = static_cast<std::uint32_t>(options.image_size);
  return {.width = side,
          .height = side,
          .augment = augment,
          .resize = static_cast<std::uint32_t>(std::lround(side * 8 / 7.0)),
          .channels_first = false,
          .mean = {0.485F, 0.456F, 0.406F},  // torchvision's, of ImageNet.
          .deviation = {0.229F, 0.224F, 0.225F}};
}

training::ImageSets open_images(const Options& options) {
  training::check_data_dir(options, "imagenet");
  return training::open_image_sets(options, {.example = "imagenet",
                                             .train_images = image_options(options, true),
                                             .test_images = image_options(options, false)});
}

class ResnetTask final : public training::Task {
 public:
  ResnetTask(const Options& options, const models::Layers& layers)
      : Task(layers, options.seed, kMetrics), options_(options) {}
  std::int64_t classes() const override { return options_.classes; }

 private:
  Samples training_samples(const data::Batch& batch, std::uint64_t /*step*/) const override {
    return test_samples(batch);  // The loader has changed them.
  }
  /// In the loader's memory, channels last.
  Samples test_samples(const data::Batch& batch) const override {
    const auto count = static_cast<std::int64_t>(batch.samples().counted);
    const at::Tensor images =
        at::from_blob(batch.field(training::kImage).data(), {count, options_.image_size, options_.image_size, 3});
    return {images.permute({0, 3, 1, 2}), training::labels_of(batch, options_.classes)};
  }
  at::Tensor loss_of(const at::Tensor& answers, const at::Tensor& labels, bool training) const override {
    return at::cross_entropy_loss(answers, labels, {}, at::Reduction::Sum, kNoIndexIgnored,
                                  training ? options_.label_smoothing : 0);
  }
  std::vector<double> scores_of(const at::Tensor& answers, const at::Tensor& labels) const override {
    const at::Tensor best = std::get<1>(answers.topk(std::min(kBestAnswers, options_.classes), 1));
    const at::Tensor hits = best.eq(labels.unsqueeze(1));
    return {static_cast<double>(hits.select(1, 0).sum().item<std::int64_t>()),
            static_cast<double>(hits.sum().item<std::int64_t>())};
  }

  const Options& options_;
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

/// Batch normalisation needs whole batches.
data::LoaderOptions train_options(const Options& options, const training::ImageSets& images,
                                  const train::GradientExchange& exchange) {
  data::LoaderOptions how = training::training_loader(options, *images.train, exchange);
  how.sampling.remainder = data::Remainder::kDrop;
  return how;
}

training::RunIdentity identity_of(const Options& options, const training::ImageSets& images, int ranks) {
  return {.recipe = result_options(options, ranks),
          .samples = images.digests,
          .classes = images.train->classes(),
          .same = {{.key = "batch_per_rank",
                    .name = "the batch of a rank",
                    .value = fmt::format("{}", options.batch_size),
                    .meaning = "batch normalisation then takes its statistics from batches of another size"}}};
}

void check_best_metric(const Options& options) {
  if (options.keep_best != "top5" || options.classes > kBestAnswers) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--keep-best top5 is the same for every epoch: with {} classes the right one is always among "
                          "the best {}; choose accuracy or loss",
                          options.classes, kBestAnswers));
}

std::string announcement(const Options& options, std::int64_t parameters, const training::ImageSets& images,
                         const train::EpochSchedule& schedule, int ranks) {
  return fmt::format("{}\nResNet-{} {}, {} parameters; {} of {}x{}; SGD, {}; seed {}\n{}",
                     training::describe(images, options.program), options.depth, options.version_name(), parameters,
                     training::describe_batch(ranks, options.batch_size), options.image_size, options.image_size,
                     training::describe_rate(schedule), options.seed, options.places());
}

}  // namespace

training::Outcome run_training(Options options, train::GradientExchange& exchange) {
  const training::ImageSets images = open_images(options);
  training::check_classes(options, images.classes);
  options.classes = images.classes;
  check_best_metric(options);
  const models::Layers layers = options.layers();
  data::Loader train(images.train, images.train_fields, train_options(options, images, exchange));
  data::Loader validation(images.test, images.test_fields, training::test_loader(options, exchange));
  ResnetTask task(options, layers);
  train::Sgd optimizer = make_optimizer(task.parameters(), options);
  const train::EpochSchedule schedule = schedule_of(options, exchange.size());
  if (exchange.rank() == 0 && options.verbose > 0) {
    training::say(announcement(options, models::parameter_count(layers), images, schedule, exchange.size()));
  }
  training::Trainer trainer(options, identity_of(options, images, exchange.size()), exchange, task, optimizer, schedule,
                            {&train}, validation);
  return trainer.run();
}

}  // namespace gyre::resnet50
