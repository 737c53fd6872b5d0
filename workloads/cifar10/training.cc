#include "workloads/cifar10/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/image_augmentation.h"
#include "gyre/data/loader.h"
#include "gyre/data/sampler.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/network.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/rmsprop.h"
#include "workloads/cifar10/image_data.h"

namespace gyre::cifar10 {
namespace {

constexpr const char* kProgram = "gyre-cifar10";
constexpr std::array<std::string_view, 2> kMetrics = {"loss", "accuracy"};
constexpr std::uint64_t kTestBatch = 256;
constexpr std::uint64_t kMemoryBudgetBytes = std::uint64_t{1} << 30;  // Of each loader.

class Cifar10Task final : public training::Task {
 public:
  Cifar10Task(const Options& options, std::int64_t classes)
      : options_(options),
        classes_(classes),
        network_(models::cifar10_cnn({.image_size = options.image_size, .classes = classes}), options.seed),
        parameters_(train::named_parameters(network_)) {}

  const train::NamedTensors& parameters() const override { return parameters_; }
  const train::NamedTensors& buffers() const override { return none_; }
  std::span<const std::string_view> metrics() const override { return kMetrics; }

  std::vector<double> train(const data::Batch& batch, std::uint64_t step, double scale) override {
    const data::Augmentation augmentation{.flip = options_.flip, .shift = options_.shift, .seed = options_.seed};
    const auto [images, labels] = make_batch(batch, options_.image_size, classes_, augmentation, batch.wait().epoch);
    const models::DropoutKey dropout{options_.seed, step, batch.samples().first_position};
    network_.train();
    const at::Tensor scores = at::log_softmax(network_.forward(images, &dropout), 1);
    const at::Tensor loss = at::nll_loss(scores, labels, {}, at::Reduction::Sum);
    (loss * scale).backward();
    return metrics_of(loss, scores, labels);
  }

  std::vector<double> evaluate(const data::Batch& batch) override {
    const auto [images, labels] = make_batch(batch, options_.image_size, classes_, {}, 0);
    network_.eval();
    const at::Tensor scores = at::log_softmax(network_.forward(images), 1);
    return metrics_of(at::nll_loss(scores, labels, {}, at::Reduction::Sum), scores, labels);
  }

 private:
  static std::vector<double> metrics_of(const at::Tensor& loss, const at::Tensor& scores, const at::Tensor& labels) {
    const auto correct = scores.detach().argmax(1).eq(labels).sum().item<std::int64_t>();
    return {loss.item<double>(), static_cast<double>(correct)};
  }

  const Options& options_;
  const std::int64_t classes_;
  models::Network network_;
  train::NamedTensors parameters_;
  train::NamedTensors none_;
};

data::Shuffling shuffling_of(const data::SampleSet& images) {
  return images.advice_on_full_shuffle(kMemoryBudgetBytes).empty() ? data::Shuffling::kFull : data::Shuffling::kBlocks;
}

/// Of one of the `ranks`.
std::unique_ptr<data::Loader> train_loader(const ImageData& images, const Options& options, int rank, int ranks) {
  const data::SamplerOptions sampling{
      .count = images.train->count(),
      .seed = options.effective_shuffle_seed(),
      .shuffling = shuffling_of(*images.train),
      .ranks = ranks,
      .batch_per_rank = options.batch_size,
      .remainder = options.drop_last ? data::Remainder::kDrop : data::Remainder::kPad,
      .sharing = options.every_rank_all_images ? data::Sharing::kEveryRankAll : data::Sharing::kSharded};
  const data::LoaderOptions how{
      .sampling = sampling, .rank = rank, .threads = options.threads, .memory_budget_bytes = kMemoryBudgetBytes};
  return std::make_unique<data::Loader>(images.train, images.train_fields, how);
}

data::LoaderOptions test_options(const ImageData& images, const Options& options, int rank, int ranks) {
  return {.sampling = {.count = images.test->count(),
                       .shuffling = data::Shuffling::kNone,
                       .ranks = ranks,
                       .batch_per_rank = kTestBatch,
                       .remainder = data::Remainder::kPad},
          .rank = rank,
          .threads = options.threads,
          .memory_budget_bytes = kMemoryBudgetBytes};
}

training::RunOptions run_options(Options options, const ImageData& images, int ranks) {
  options.classes = images.classes;
  return {.program = kProgram,
          .checkpoint_dir = options.checkpoint_dir,
          .tensorboard_dir = options.tensorboard_dir,
          .talks = options.verbose > 0,
          .recipe = result_options(options, ranks),
          .classes = images.train->classes(),
          .files = images.files};
}

training::TrainerOptions trainer_options(const Options& options, const ImageData& images, int ranks) {
  training::TrainerOptions result{.run = run_options(options, images, ranks),
                                  .samples = "images",
                                  .epochs = options.epochs,
                                  .verbose = options.verbose,
                                  .check_replicas = options.check_replicas,
                                  .print_hashes = options.print_hashes};
  training::apply(options, kMetrics, result);
  if (options.target_accuracy) {
    result.target = {.metric = kAccuracy, .value = *options.target_accuracy, .at_most = false};
  }
  return result;
}

train::EpochSchedule schedule_of(const Options& options, int ranks) {
  return {.base = options.learning_rate,
          .peak = options.learning_rate * (options.scale_learning_rate ? ranks : 1),
          .warmup_epochs = options.warmup_epochs,
          .warmup_unit = train::WarmupUnit::kStep};
}

void check_ranks(const Options& options, const train::GradientExchange& exchange, int ranks) {
  if (options.play_ranks > 1 && exchange.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "--play-ranks is for a single process; this job has several");
  }
  if (options.play_ranks > 1 && options.every_rank_all_images) {
    throw Error(ErrorCode::kInvalidArgument, "--play-ranks divides the images among ranks; --compat smarker does not");
  }
  if (options.batch_size * static_cast<std::uint64_t>(ranks) > models::kMostPositions) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a global batch of {} x {} images is more than {}", ranks,
                                                         options.batch_size, models::kMostPositions));
  }
}

void announce(const Options& options, const ImageData& images, const train::EpochSchedule& schedule,
              std::uint64_t steps, int ranks) {
  fmt::print("{}: {} training images, {} test images, {} classes, from {}\n", kProgram, images.train->count(),
             images.test->count(), images.classes, images.folder.string());
  for (const std::string& remark : images.remarks) fmt::print("{}\n", remark);
  fmt::print("{} {} x batch {}{}: {} steps an epoch; RMSprop, learning rate {}{}, decay {}; seed {}\n", ranks,
             ranks == 1 ? "rank" : "ranks", options.batch_size,
             options.every_rank_all_images ? ", every rank runs all images" : "", steps, schedule.peak,
             schedule.warmup_epochs > 0 ? fmt::format(" after {} epochs of warm-up", schedule.warmup_epochs) : "",
             options.decay, options.seed);
  fmt::print("checkpoints go to {}, curves for TensorBoard to {}\n", options.checkpoint_dir.string(),
             options.tensorboard_dir.string());
  std::fflush(stdout);
}

}  // namespace

training::Outcome run_training(const Options& options, train::GradientExchange& exchange) {
  const int ranks = exchange.size() * options.play_ranks;  // Real ones, or those that this process plays.
  const ImageData images = open_images(options);
  check_ranks(options, exchange, ranks);
  std::vector<std::unique_ptr<data::Loader>> played;  // One for each rank that this process plays.
  std::vector<data::Loader*> train;
  for (int index = 0; index < options.play_ranks; ++index) {
    played.push_back(train_loader(images, options, exchange.rank() * options.play_ranks + index, ranks));
    train.push_back(played.back().get());
  }
  data::Loader test(images.test, images.test_fields, test_options(images, options, exchange.rank(), exchange.size()));
  Cifar10Task task(options, images.classes);
  train::Rmsprop optimizer(task.parameters(), {.decay = options.decay});
  const train::EpochSchedule schedule = schedule_of(options, ranks);
  if (exchange.rank() == 0 && options.verbose > 0) {
    announce(options, images, schedule, train.front()->steps(), ranks);
  }
  training::Trainer trainer(trainer_options(options, images, ranks), exchange, task, optimizer, schedule,
                            std::move(train), test);
  return trainer.run();
}

}  // namespace gyre::cifar10
