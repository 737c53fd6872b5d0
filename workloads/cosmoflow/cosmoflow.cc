#include "workloads/cosmoflow/cosmoflow.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/formats/example.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/loader.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/record_set.h"
#include "gyre/data/sample_subset.h"
#include "gyre/models/network.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/sgd.h"
#include "workloads/cosmoflow/symmetry.h"

namespace gyre::cosmoflow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "gyre-cosmoflow";
constexpr std::array<std::string_view, 3> kMetrics = {"loss", "mae", "mae_of_zeros"};
enum FieldIndex : std::size_t { kVolume, kTargets };
constexpr std::uint64_t kMostSampleBytes = std::uint64_t{1} << 34;

/// The TFRecord files of a folder, compressed or not, by name.
std::vector<std::string> tfrecords_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    if (data::is_hidden(name)) continue;
    if (name.ends_with(".tfrecord") || name.ends_with(".tfrecord.gz")) names.push_back(entry.path().string());
  }
  if (problem) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: {}; --data-dir needs folders train and validation with TFRecord "
                                                  "files, as `python -m gyre.datasets cosmo` writes them",
                                                  folder.string(), problem.message()));
  }
  if (names.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} has no files named *.tfrecord or *.tfrecord.gz", folder.string()));
  }
  std::ranges::sort(names);
  return names;
}

struct VolumeSet {
  std::shared_ptr<const data::SampleSet> samples;
  std::string digest;  ///< Of the files.
};

/// The first `samples` (0: all) of a folder.
VolumeSet open_set(const fs::path& folder, std::uint64_t samples, const Recipe& recipe, const char* option) {
  std::vector<std::string> names = tfrecords_in(folder);
  const std::uint64_t there = names.size() * recipe.samples_per_file;
  if (samples > there) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} asks for {} samples; {} has {} files of {}", option, samples, folder.string(),
                            names.size(), recipe.samples_per_file));
  }
  if (samples > 0) names.resize((samples - 1) / recipe.samples_per_file + 1);
  std::shared_ptr<const data::SampleSet> set = std::make_shared<data::RecordSet>(
      names, data::open_local_file,
      data::RecordSetOptions{.records_per_file = recipe.samples_per_file, .threads = recipe.threads});
  if (samples > 0) set = data::first_samples(std::move(set), samples);
  const data::SampleOptions how{.records_per_file = recipe.samples_per_file};
  return {set, fmt::format("{:016x}", data::files_checksum(names, data::open_local_file, *set, how))};
}

/// The edge of the volumes, from the size of the first one.
std::int64_t size_of_volumes(const data::SampleSet& set, const models::CosmoflowOptions& network) {
  const auto reader = set.make_reader(std::make_shared<data::MemoryBudget>(kMostSampleBytes));
  data::StageTimes times;
  const data::Example example = reader->read_sample(0, times);
  const data::Feature* feature = example.find("x");
  if (feature == nullptr || feature->kind() != data::FeatureKind::kBytes || feature->bytes().size() != 1) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: no bytes named 'x'", reader->position()));
  }
  const std::uint64_t bytes = feature->bytes().front().size();
  const auto per_voxel = static_cast<std::uint64_t>(network.channels) * sizeof(std::int16_t);
  const std::uint64_t voxels = bytes / per_voxel;
  const auto size = static_cast<std::int64_t>(std::lround(std::cbrt(static_cast<double>(voxels))));
  if (static_cast<std::uint64_t>(size * size * size) * per_voxel != bytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: 'x' has {} bytes, which is not a cube of {} int16 values per voxel",
                            reader->position(), bytes, network.channels));
  }
  return size;
}

std::vector<data::Field> fields_of(const Recipe& recipe) {
  const auto size = static_cast<std::uint64_t>(recipe.network.size);
  return {{.name = "x",
           .kind = data::FeatureKind::kBytes,
           .stored = data::ElementType::kInt16,
           .type = data::ElementType::kFloat32,
           .shape = {size, size, size, static_cast<std::uint64_t>(recipe.network.channels)},
           .transform = recipe.apply_log ? data::ValueTransform::kLog1p : data::ValueTransform::kNone},
          {.name = "y",
           .kind = data::FeatureKind::kFloats,
           .stored = data::ElementType::kFloat32,
           .type = data::ElementType::kFloat32,
           .shape = {static_cast<std::uint64_t>(recipe.network.targets)}}};
}

/// The samples of a batch that count, in the loader's memory.
struct Samples {
  at::Tensor volumes;  // [n, channels, size, size, size], channels last in memory, as they are stored.
  at::Tensor targets;  // [n, targets]
};

class CosmoflowTask final : public training::Task {
 public:
  CosmoflowTask(const Recipe& recipe, const models::Layers& layers)
      : recipe_(recipe), network_(layers, recipe.seed), parameters_(train::named_parameters(network_)) {}

  const train::NamedTensors& parameters() const override { return parameters_; }
  const train::NamedTensors& buffers() const override { return none_; }
  std::span<const std::string_view> metrics() const override { return kMetrics; }

  std::vector<double> train(const data::Batch& batch, std::uint64_t step, double scale) override {
    const auto [stored, targets] = samples_of(batch);
    const auto samples = std::span(batch.samples().samples).first(batch.samples().counted);
    const at::Tensor volumes = recipe_.augment ? turned_at_random(stored, samples, recipe_.seed, step) : stored;
    const models::DropoutKey dropout{recipe_.seed, step, batch.samples().first_position};
    network_.train();
    const at::Tensor answers = network_.forward(volumes, &dropout);
    const at::Tensor loss = (answers - targets).square().mean(1).sum();
    (loss * scale).backward();
    return metrics_of(answers.detach(), targets);
  }

  std::vector<double> evaluate(const data::Batch& batch) override {
    const auto [volumes, targets] = samples_of(batch);
    network_.eval();
    return metrics_of(network_.forward(volumes), targets);
  }

 private:
  Samples samples_of(const data::Batch& batch) const {
    const auto count = static_cast<std::int64_t>(batch.samples().counted);
    const models::CosmoflowOptions& network = recipe_.network;
    const at::Tensor stored =
        at::from_blob(batch.field(kVolume).data(), {count, network.size, network.size, network.size, network.channels});
    const at::Tensor volumes = stored.permute({0, 4, 1, 2, 3});
    const at::Tensor targets = at::from_blob(batch.field(kTargets).data(), {count, network.targets});
    if (recipe_.apply_log) return {volumes, targets};
    return {volumes / volumes.mean({1, 2, 3, 4}, true), targets};
  }

  static std::vector<double> metrics_of(const at::Tensor& answers, const at::Tensor& targets) {
    const at::Tensor differences = answers - targets;
    return {differences.square().mean(1).sum().item<double>(), differences.abs().mean(1).sum().item<double>(),
            targets.abs().mean(1).sum().item<double>()};
  }

  const Recipe& recipe_;
  models::Network network_;
  train::NamedTensors parameters_;
  train::NamedTensors none_;
};

/// The kernels of the hidden dense layers alone are held small.
std::vector<train::DecayedParameter> decayed(const train::NamedTensors& parameters, double l2) {
  std::vector<train::DecayedParameter> result;
  for (const train::NamedTensor& parameter : parameters) {
    const bool hidden = parameter.name == "fc1.weight" || parameter.name == "fc2.weight";
    result.push_back({parameter, hidden ? 2 * l2 : 0.0});
  }
  return result;
}

train::EpochSchedule schedule_of(const Recipe& recipe, std::uint64_t global_batch) {
  train::EpochSchedule schedule{.base = recipe.base_lr,
                                .peak = peak_learning_rate(recipe, global_batch),
                                .warmup_epochs = recipe.n_warmup_epochs,
                                .warmup_unit = train::WarmupUnit::kEpoch};
  for (const auto& [epoch, factor] : recipe.decay_schedule) schedule.factors[epoch + 1] = factor;
  return schedule;
}

data::LoaderOptions loader_options(const Recipe& recipe, std::uint64_t count, data::Shuffling shuffling,
                                   const train::GradientExchange& exchange) {
  return {.sampling = {.count = count,
                       .seed = recipe.seed,
                       .shuffling = shuffling,
                       .ranks = exchange.size(),
                       .batch_per_rank = recipe.batch_size,
                       .remainder = data::Remainder::kPad},
          .rank = exchange.rank(),
          .threads = recipe.threads,
          .memory_budget_bytes = recipe.memory_budget_bytes};
}

training::TrainerOptions trainer_options(const Recipe& recipe, const std::string& files, int ranks) {
  training::TrainerOptions options{.run = {.program = kProgram,
                                           .checkpoint_dir = recipe.output_dir / "checkpoints",
                                           .tensorboard_dir = recipe.output_dir / "tensorboard",
                                           .talks = recipe.verbose > 0,
                                           .recipe = result_options(recipe, ranks),
                                           .files = files},
                                   .samples = "volumes",
                                   .epochs = recipe.n_epochs,
                                   .verbose = recipe.verbose,
                                   .check_replicas = recipe.check_replicas};
  training::apply(recipe, kMetrics, options);
  if (recipe.target_mae) options.target = {.metric = kMae, .value = *recipe.target_mae, .at_most = true};
  return options;
}

void announce(const Recipe& recipe, std::int64_t parameters, const train::EpochSchedule& schedule,
              std::uint64_t n_train, std::uint64_t n_valid, int ranks) {
  const models::CosmoflowOptions& network = recipe.network;
  fmt::print("{}: {} training volumes of {}x{}x{}x{}, {} validation volumes, from {}\n", kProgram, n_train,
             network.size, network.size, network.size, network.channels, n_valid, recipe.data_dir.string());
  fmt::print(
      "{} parameters; kernel {}, dropout {}, L2 {}; {} {} x batch {}; SGD, momentum {}, learning rate {}{}; seed {}; "
      "output "
      "in {}\n",
      parameters, network.kernel_size, network.dropout, recipe.l2, ranks, ranks == 1 ? "rank" : "ranks",
      recipe.batch_size, recipe.momentum, schedule.peak,
      schedule.warmup_epochs > 0 ? fmt::format(" from {} over {} epochs", schedule.base, schedule.warmup_epochs) : "",
      recipe.seed, recipe.output_dir.string());
  if (!recipe.without_effect.empty()) {
    fmt::print("without effect here: {} (docs/guide/workloads.md says why)\n", fmt::join(recipe.without_effect, ", "));
  }
  std::fflush(stdout);
}

}  // namespace

training::Outcome run_training(Recipe recipe, train::GradientExchange& exchange) {
  const std::uint64_t global_batch = recipe.batch_size * static_cast<std::uint64_t>(exchange.size());
  if (global_batch > models::kMostPositions) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a global batch of {} x {} volumes is more than {}",
                                                         exchange.size(), recipe.batch_size, models::kMostPositions));
  }
  const auto train_set = open_set(recipe.data_dir / "train", recipe.n_train, recipe, "n_train");
  const auto valid_set = open_set(recipe.data_dir / "validation", recipe.n_valid, recipe, "n_valid");
  if (recipe.network.size == 0) recipe.network.size = size_of_volumes(*train_set.samples, recipe.network);
  const models::Layers layers = models::cosmoflow(recipe.network);
  const std::uint64_t n_train = train_set.samples->count();
  const std::uint64_t n_valid = valid_set.samples->count();
  data::Loader train(train_set.samples, fields_of(recipe),
                     loader_options(recipe, n_train, data::Shuffling::kFull, exchange));
  data::Loader valid(valid_set.samples, fields_of(recipe),
                     loader_options(recipe, n_valid, data::Shuffling::kNone, exchange));
  CosmoflowTask task(recipe, layers);
  train::Sgd optimizer(decayed(task.parameters(), recipe.l2),
                       {.momentum = recipe.momentum, .convention = train::MomentumConvention::kKeras});
  const train::EpochSchedule schedule = schedule_of(recipe, global_batch);
  if (exchange.rank() == 0 && recipe.verbose > 0) {
    announce(recipe, models::parameter_count(layers), schedule, n_train, n_valid, exchange.size());
  }
  training::Trainer trainer(trainer_options(recipe, train_set.digest, exchange.size()), exchange, task, optimizer,
                            schedule, {&train}, valid);
  return trainer.run();
}

}  // namespace gyre::cosmoflow
