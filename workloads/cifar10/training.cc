#include "workloads/cifar10/training.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/progress_bar.h"
#include "gyre/data/image_augmentation.h"
#include "gyre/data/loader.h"
#include "gyre/data/sampler.h"
#include "gyre/data/tensorboard.h"
#include "gyre/train/gradient_exchange.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/rmsprop.h"
#include "workloads/cifar10/image_data.h"
#include "workloads/cifar10/model.h"
#include "workloads/training/dropout.h"
#include "workloads/training/run_state.h"

namespace gyre::cifar10 {
namespace {

constexpr const char* kProgram = "gyre-cifar10";
constexpr std::uint64_t kTestBatch = 256;
constexpr std::uint64_t kMemoryBudgetBytes = std::uint64_t{1} << 30;  // Of each loader.

/// Loss and hits of some images; sums, so that ranks can be added up.
struct Sums {
  double loss = 0;
  double correct = 0;
  double images = 0;

  Sums& operator+=(const Sums& other) {
    loss += other.loss;
    correct += other.correct;
    images += other.images;
    return *this;
  }
  double mean_loss() const { return images > 0 ? loss / images : 0; }
  double accuracy() const { return images > 0 ? correct / images : 0; }
};

class Training {
 public:
  Training(const Options& options, train::GradientExchange& exchange);
  Outcome run();

 private:
  bool leader() const { return exchange_.rank() == 0; }
  bool talks() const { return leader() && options_.verbose > 0; }
  /// Ranks that share the work: real ones, or those that this process plays.
  int ranks() const { return exchange_.size() * options_.play_ranks; }
  void say(const std::string& line) const;

  void announce() const;
  void start_or_resume();
  Sums train_epoch(std::uint64_t epoch);
  void train_step(std::uint64_t epoch, Sums& sums);
  Sums compute_gradients(const data::Batch& read, std::uint64_t epoch);
  Sums evaluate();
  Sums reduced(const Sums& sums) const;
  void check_step(std::uint64_t epoch, std::uint64_t step);
  void finish_epoch(std::uint64_t epoch, const Sums& trained, const Sums& tested, double seconds);
  Outcome outcome_of(const Sums& trained, const Sums& tested) const;
  training::Progress progress() const;

  Options options_;
  train::GradientExchange& exchange_;
  ImageData data_;
  Cifar10Cnn network_;
  train::Rmsprop optimizer_;
  training::RunState state_;
  std::vector<std::unique_ptr<data::Loader>> train_;  // One for each rank that this process plays.
  data::Loader test_;
  std::uint64_t steps_per_epoch_;
  train::LearningRateSchedule schedule_;
  std::uint64_t epochs_done_ = 0;
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
          .keep_checkpoints = options.keep_checkpoints,
          .resume = options.resume,
          .talks = options.verbose > 0,
          .recipe = result_options(options, ranks)};
}

/// Without autograd.
train::NamedTensors parameters_of(const Cifar10Cnn& network) {
  train::NamedTensors state;
  for (const auto& [name, tensor] : network.parameters()) state.push_back({name, tensor.detach()});
  return state;
}

Training::Training(const Options& options, train::GradientExchange& exchange)
    : options_(options),
      exchange_(exchange),
      data_(open_images(options)),
      network_(options.seed, options.image_size, data_.classes),
      optimizer_(network_.parameters(), {.decay = options.decay}),
      state_(run_options(options_, data_, ranks()), exchange, parameters_of(network_), optimizer_.state()),
      test_(data_.test, data_.test_fields, test_options(data_, options, exchange.rank(), exchange.size())) {
  if (options_.play_ranks > 1 && exchange_.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "--play-ranks is for a single process; this job has several");
  }
  if (options_.play_ranks > 1 && options_.every_rank_all_images) {
    throw Error(ErrorCode::kInvalidArgument, "--play-ranks divides the images among ranks; --compat smarker does not");
  }
  if (options_.batch_size * static_cast<std::uint64_t>(ranks()) > training::kMostPositions) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a global batch of {} x {} images is more than {}", ranks(),
                                                         options_.batch_size, training::kMostPositions));
  }
  for (int played = 0; played < options_.play_ranks; ++played) {
    train_.push_back(train_loader(data_, options_, exchange_.rank() * options_.play_ranks + played, ranks()));
  }
  steps_per_epoch_ = train_.front()->steps();
  schedule_ = {.base = options_.learning_rate,
               .scale = options_.scale_learning_rate ? static_cast<double>(ranks()) : 1.0,
               .warmup_steps = options_.warmup_epochs * steps_per_epoch_};
}

void Training::say(const std::string& line) const {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Training::announce() const {
  say(fmt::format("{}: {} training images, {} test images, {} classes, from {}", kProgram, data_.train->count(),
                  data_.test->count(), data_.classes, data_.folder.string()));
  say(fmt::format("{} {} x batch {}{}: {} steps an epoch; RMSprop, learning rate {}{}, decay {}; seed {}", ranks(),
                  ranks() == 1 ? "rank" : "ranks", options_.batch_size,
                  options_.every_rank_all_images ? ", every rank runs all images" : "", steps_per_epoch_,
                  schedule_.base * schedule_.scale,
                  schedule_.warmup_steps > 0 ? fmt::format(" after {} epochs of warm-up", options_.warmup_epochs) : "",
                  options_.decay, options_.seed));
  say(fmt::format("checkpoints go to {}, curves for TensorBoard to {}", options_.checkpoint_dir.string(),
                  options_.tensorboard_dir.string()));
}

training::Progress Training::progress() const {
  return {{"epoch", static_cast<double>(epochs_done_)}, {"step", static_cast<double>(optimizer_.iteration())}};
}

void Training::start_or_resume() {
  training::Progress found = progress();
  state_.start_or_resume(found);
  epochs_done_ = static_cast<std::uint64_t>(found[0].second);
  optimizer_.set_iteration(static_cast<std::uint64_t>(found[1].second));
}

/// Forward and backward over this rank's part of the global batch. The loss is scaled so that the average of the
/// ranks' gradients is the gradient of the mean over all images of the step, also when parts differ in size.
Sums Training::compute_gradients(const data::Batch& read, std::uint64_t epoch) {
  const data::RankBatch& batch = read.samples();
  if (batch.counted == 0) return {};
  const data::Augmentation augmentation{.flip = options_.flip, .shift = options_.shift, .seed = options_.seed};
  const auto [images, labels] = make_batch(read, options_.image_size, data_.classes, augmentation, epoch);
  const training::DropoutKey dropout{options_.seed, optimizer_.iteration(), batch.first_position};
  const at::Tensor scores = at::log_softmax(network_.forward(images, &dropout), 1);
  const at::Tensor loss = at::nll_loss(scores, labels, {}, at::Reduction::Sum);
  const double share = static_cast<double>(ranks()) / static_cast<double>(batch.counted_globally);
  (loss * share).backward();
  const auto correct = scores.detach().argmax(1).eq(labels).sum().item<std::int64_t>();
  return {loss.item<double>(), static_cast<double>(correct), static_cast<double>(batch.counted)};
}

void Training::train_step(std::uint64_t epoch, Sums& sums) {
  exchange_.zero_gradients();
  for (const auto& played : train_) {
    const std::optional<data::Batch> read = played->next();
    GYRE_CHECK(read.has_value());
    exchange_.note_wait("data: train", read->wait());
    // Backward adds to the gradients that are there: several played ranks are summed in rank order.
    sums += compute_gradients(*read, epoch);
  }
  exchange_.synchronize();
  if (options_.play_ranks > 1) {
    for (const auto& [name, parameter] : network_.parameters()) {
      if (parameter.grad().defined()) parameter.mutable_grad().div_(options_.play_ranks);
    }
  }
  if (exchange_.begin_step()) {
    optimizer_.step(schedule_.at(optimizer_.iteration()));
    exchange_.finish_step();
  }
}

Sums Training::train_epoch(std::uint64_t epoch) {
  for (const auto& played : train_) played->start_epoch(epoch);
  ProgressBar bar(fmt::format("epoch {}/{}", epoch + 1, options_.epochs), steps_per_epoch_,
                  progress_options_from_environment(STDOUT_FILENO));
  const auto start = SteadyClock::now();
  Sums sums;
  for (std::uint64_t step = 0; step < steps_per_epoch_; ++step) {
    train_step(epoch, sums);
    check_step(epoch, step);
    if (leader() && options_.verbose == 1) {
      const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
      const double rate = sums.images * exchange_.size() / seconds;
      bar.update(step + 1,
                 fmt::format("loss {:.4f}  accuracy {:.4f}  {:.0f} images/s", sums.mean_loss(), sums.accuracy(), rate));
    }
  }
  bar.clear();
  exchange_.settle();
  return reduced(sums);
}

/// After every step: what --print-hashes and --check-replicas ask for; after an epoch's last step always the latter.
void Training::check_step(std::uint64_t epoch, std::uint64_t step) {
  const bool check = exchange_.replicas_are_equal() && (options_.check_replicas || step + 1 == steps_per_epoch_);
  if (!check && !options_.print_hashes) return;
  const std::uint64_t hash = state_.hash();
  if (options_.print_hashes) {
    say(fmt::format("hash epoch {} step {} rank {} {:016x}", epoch + 1, step + 1, exchange_.rank(), hash));
  }
  if (check) {
    train::check_replicas(exchange_, hash, fmt::format("after step {} of epoch {}", step + 1, epoch + 1));
  }
}

/// The whole test set, each rank its share of it.
Sums Training::evaluate() {
  const c10::NoGradGuard no_grad;
  Sums sums;
  test_.start_epoch(0);
  while (const std::optional<data::Batch> read = test_.next()) {
    exchange_.note_wait("data: test", read->wait());
    if (read->samples().counted == 0) continue;
    const auto [images, labels] = make_batch(*read, options_.image_size, data_.classes, {}, 0);
    const at::Tensor scores = at::log_softmax(network_.forward(images, nullptr), 1);
    sums += {at::nll_loss(scores, labels, {}, at::Reduction::Sum).item<double>(),
             static_cast<double>(scores.argmax(1).eq(labels).sum().item<std::int64_t>()),
             static_cast<double>(labels.numel())};
  }
  return reduced(sums);
}

Sums Training::reduced(const Sums& sums) const {
  std::vector<double> values = {sums.loss, sums.correct, sums.images};
  exchange_.sum(values);
  return {values[0], values[1], values[2]};
}

/// The checkpoint; on rank 0 the curves and the line, too.
void Training::finish_epoch(std::uint64_t epoch, const Sums& trained, const Sums& tested, double seconds) {
  state_.save(epochs_done_, progress());
  if (!leader()) return;
  const double rate = trained.images / seconds;
  const std::array<data::Scalar, 6> scalars = {{{"train/loss", trained.mean_loss()},
                                                {"train/accuracy", trained.accuracy()},
                                                {"train/images_per_second", rate},
                                                {"train/learning_rate", schedule_.at(optimizer_.iteration() - 1)},
                                                {"test/loss", tested.mean_loss()},
                                                {"test/accuracy", tested.accuracy()}}};
  state_.add_scalars(epochs_done_, scalars);
  if (!talks()) return;
  say(
      fmt::format("epoch {}/{}  loss {:.4f}  accuracy {:.4f}  test loss {:.4f}  test accuracy {:.4f}  {:.0f} images/s  "
                  "{:.1f} s",
                  epoch + 1, options_.epochs, trained.mean_loss(), trained.accuracy(), tested.mean_loss(),
                  tested.accuracy(), rate, seconds));
}

Outcome Training::outcome_of(const Sums& trained, const Sums& tested) const {
  return {.epochs = epochs_done_,
          .train_loss = trained.mean_loss(),
          .test_loss = tested.mean_loss(),
          .test_accuracy = tested.accuracy(),
          .target_reached = options_.target_accuracy && tested.accuracy() >= *options_.target_accuracy,
          .state_hash = state_.hash()};
}

Outcome Training::run() {
  if (talks()) announce();
  exchange_.attach(network_.parameters());
  start_or_resume();
  Outcome outcome;
  if (epochs_done_ >= options_.epochs) outcome = outcome_of({}, evaluate());  // Resumed, and nothing left to train.
  for (std::uint64_t epoch = epochs_done_; epoch < options_.epochs && !outcome.target_reached; ++epoch) {
    const auto start = SteadyClock::now();
    const Sums trained = train_epoch(epoch);
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
    const Sums tested = evaluate();
    epochs_done_ = epoch + 1;
    finish_epoch(epoch, trained, tested, seconds);
    outcome = outcome_of(trained, tested);
  }
  if (talks() && options_.target_accuracy) {
    say(fmt::format("test accuracy {:.4f} after {} epochs: the target {} is {}", outcome.test_accuracy, outcome.epochs,
                    *options_.target_accuracy, outcome.target_reached ? "reached" : "not reached"));
  }
  return outcome;
}

}  // namespace

Outcome run_training(const Options& options, train::GradientExchange& exchange) {
  return Training(options, exchange).run();
}

}  // namespace gyre::cifar10
