#include "workloads/cifar10/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/image_augmentation.h"
#include "gyre/data/loader.h"
#include "gyre/data/sampler.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/rmsprop.h"
#include "workloads/cifar10/images.h"
#include "workloads/training/report.h"
#include "workloads/training/task.h"

namespace gyre::cifar10 {
namespace {

constexpr std::array kMetrics = {training::Metric{"loss"},
                                 training::Metric{.name = "accuracy", .lowest_is_best = false}};
constexpr std::uint64_t kTestBatch = 256;

class Cifar10Task final : public training::Task {
 public:
  explicit Cifar10Task(const Options& options)
      : Task(models::cifar10_cnn({.image_size = options.image_size, .classes = options.classes}), options.seed,
             kMetrics),
        options_(options) {}
  std::int64_t classes() const override { return options_.classes; }

 private:
  Samples training_samples(const data::Batch& batch, std::uint64_t /*step*/) const override {
    return samples_of(batch, {.flip = options_.flip, .shift = options_.shift, .seed = options_.seed});
  }
  Samples test_samples(const data::Batch& batch) const override { return samples_of(batch, {}); }
  at::Tensor loss_of(const at::Tensor& answers, const at::Tensor& labels, bool /*training*/) const override {
    return at::cross_entropy_loss(answers, labels, {}, at::Reduction::Sum);
  }
  std::vector<double> scores_of(const at::Tensor& answers, const at::Tensor& labels) const override {
    return {static_cast<double>(answers.argmax(1).eq(labels).sum().item<std::int64_t>())};
  }

  Samples samples_of(const data::Batch& batch, const data::Augmentation& augmentation) const {
    return {images_of(batch, options_.image_size, augmentation, batch.wait().epoch),
            training::labels_of(batch, options_.classes)};
  }

  const Options& options_;
};

/// Of one of the `ranks`.
data::LoaderOptions train_options(const Options& options, const training::ImageSets& images,
                                  const train::GradientExchange& exchange, int rank, int ranks) {
  data::LoaderOptions how = training::training_loader(options, *images.train, exchange);
  how.rank = rank;
  how.sampling.ranks = ranks;
  how.sampling.seed = options.effective_shuffle_seed();
  if (options.drop_last) how.sampling.remainder = data::Remainder::kDrop;
  if (options.every_rank_all_images) how.sampling.sharing = data::Sharing::kEveryRankAll;
  return how;
}

data::LoaderOptions test_options(const Options& options, const train::GradientExchange& exchange) {
  data::LoaderOptions how = training::test_loader(options, exchange);
  how.sampling.batch_per_rank = kTestBatch;
  return how;
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
  training::check_global_batch(options, ranks);
}

std::string announcement(const Options& options, const training::ImageSets& images,
                         const train::EpochSchedule& schedule, std::uint64_t steps, int ranks) {
  return fmt::format("{}\n{}{}: {} steps an epoch; RMSprop, {}, decay {}; seed {}\n{}",
                     training::describe(images, options.program), training::describe_batch(ranks, options.batch_size),
                     options.every_rank_all_images ? ", every rank runs all images" : "", steps,
                     training::describe_rate(schedule), options.decay, options.seed, options.places());
}

}  // namespace

training::Outcome run_training(Options options, train::GradientExchange& exchange) {
  const int ranks = exchange.size() * options.play_ranks;  // Real ones, or those that this process plays.
  const training::ImageSets images = open_images(options);
  training::check_classes(options, images.classes);
  options.classes = images.classes;
  check_ranks(options, exchange, ranks);
  std::vector<std::unique_ptr<data::Loader>> played;  // One for each rank that this process plays.
  std::vector<data::Loader*> train;
  for (int index = 0; index < options.play_ranks; ++index) {
    const int rank = exchange.rank() * options.play_ranks + index;
    played.push_back(std::make_unique<data::Loader>(images.train, images.train_fields,
                                                    train_options(options, images, exchange, rank, ranks)));
    train.push_back(played.back().get());
  }
  data::Loader test(images.test, images.test_fields, test_options(options, exchange));
  Cifar10Task task(options);
  train::Rmsprop optimizer(task.parameters(), {.decay = options.decay});
  const train::EpochSchedule schedule = schedule_of(options, ranks);
  if (exchange.rank() == 0 && options.verbose > 0) {
    training::say(announcement(options, images, schedule, train.front()->steps(), ranks));
  }
  training::RunIdentity identity{
      .recipe = result_options(options, ranks), .samples = images.digests, .classes = images.train->classes()};
  training::Trainer trainer(options, std::move(identity), exchange, task, optimizer, schedule, std::move(train), test);
  return trainer.run();
}

}  // namespace gyre::cifar10
