#include "workloads/cosmoflow/cosmoflow.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/formats/example.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/loader.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/record_set.h"
#include "gyre/data/sample_subset.h"
#include "gyre/models/layer.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/sgd.h"
#include "workloads/cosmoflow/symmetry.h"
#include "workloads/training/report.h"
#include "workloads/training/task.h"

namespace gyre::cosmoflow {
namespace {

namespace fs = std::filesystem;

constexpr std::array kMetrics = {training::Metric{"loss"}, training::Metric{"mae"}, training::Metric{"mae_of_zeros"}};
enum FieldIndex : std::size_t { kVolume, kTargets };
constexpr std::uint64_t kMostSampleBytes = std::uint64_t{1} << 34;

/// The TFRecord files of a folder, compressed or not, by name.
std::vector<std::string> tfrecords_in(const fs::path& folder, const data::Folders& folders) {
  std::vector<std::string> names;
  try {
    for (const data::FolderEntry& entry : folders.list(folder.string())) {
      if (data::is_hidden(entry.name)) continue;
      const bool records = entry.name.ends_with(".tfrecord") || entry.name.ends_with(".tfrecord.gz");
      if (records) names.push_back((folder / entry.name).string());
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; --data-dir needs folders train and validation with TFRecord files, as "
                                          "`python -m gyre.datasets cosmo` writes them",
                                          error.what()));
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
  training::DigestSamples digests;
};

/// The first `samples` (0: all) of a folder.
VolumeSet open_set(const fs::path& folder, std::uint64_t samples, const Recipe& recipe, const char* option) {
  std::vector<std::string> names = tfrecords_in(folder, recipe.files.folders());
  const std::uint64_t there = names.size() * recipe.samples_per_file;
  if (samples > there) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} asks for {} samples; {} has {} files of {}", option, samples, folder.string(),
                            names.size(), recipe.samples_per_file));
  }
  if (samples > 0) names.resize((samples - 1) / recipe.samples_per_file + 1);
  std::shared_ptr<const data::SampleSet> set = std::make_shared<data::RecordSet>(
      names, recipe.files,
      data::RecordSetOptions{.records_per_file = recipe.samples_per_file, .threads = recipe.threads});
  if (samples > 0) set = data::first_samples(std::move(set), samples);
  const data::SampleOptions how{.records_per_file = recipe.samples_per_file};
  return {set, training::digests_of(std::move(names), recipe.files, set, how)};
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

class CosmoflowTask final : public training::Task {
 public:
  CosmoflowTask(const Recipe& recipe, const models::Layers& layers)
      : Task(layers, recipe.seed, kMetrics), recipe_(recipe) {}

 private:
  Samples training_samples(const data::Batch& batch, std::uint64_t step) const override {
    Samples found = test_samples(batch);
    const auto samples = std::span(batch.samples().samples).first(batch.samples().counted);
    if (recipe_.augment) found.inputs = turned_at_random(found.inputs, samples, recipe_.seed, step);
    return found;
  }
  /// In the loader's memory: [n, channels, size, size, size], channels last as they are stored, and [n, targets].
  Samples test_samples(const data::Batch& batch) const override {
    const auto count = static_cast<std::int64_t>(batch.samples().counted);
    const models::CosmoflowOptions& network = recipe_.network;
    const at::Tensor stored =
        at::from_blob(batch.field(kVolume).data(), {count, network.size, network.size, network.size, network.channels});
    const at::Tensor volumes = stored.permute({0, 4, 1, 2, 3});
    const at::Tensor targets = at::from_blob(batch.field(kTargets).data(), {count, network.targets});
    if (recipe_.apply_log) return {volumes, targets};
    return {volumes / volumes.mean({1, 2, 3, 4}, true), targets};
  }
  at::Tensor loss_of(const at::Tensor& answers, const at::Tensor& targets, bool /*training*/) const override {
    return (answers - targets).square().mean(1).sum();
  }
  std::vector<double> scores_of(const at::Tensor& answers, const at::Tensor& targets) const override {
    return {(answers - targets).abs().mean(1).sum().item<double>(), targets.abs().mean(1).sum().item<double>()};
  }

  const Recipe& recipe_;
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
                                .warmup_epochs = recipe.warmup_epochs,
                                .warmup_unit = train::WarmupUnit::kEpoch};
  for (const auto& [epoch, factor] : recipe.decay_schedule) schedule.factors[epoch + 1] = factor;
  return schedule;
}

/// In any order, also where that means to decompress files of several volumes anew.
data::LoaderOptions train_options(const Recipe& recipe, const data::SampleSet& set,
                                  const train::GradientExchange& exchange) {
  data::LoaderOptions how = training::training_loader(recipe, set, exchange);
  how.sampling.shuffling = data::Shuffling::kFull;
  return how;
}

std::string announcement(const Recipe& recipe, std::int64_t parameters, const train::EpochSchedule& schedule,
                         std::uint64_t n_train, std::uint64_t n_valid, int ranks) {
  const models::CosmoflowOptions& network = recipe.network;
  std::string lines =
      fmt::format("{}: {} training volumes of {}x{}x{}x{}, {} validation volumes, from {}\n", recipe.program, n_train,
                  network.size, network.size, network.size, network.channels, n_valid, recipe.data_dir.string());
  lines += fmt::format(
      "{} parameters; kernel {}, dropout {}, L2 {}; {}; SGD, momentum {}, learning rate {}{}; seed {}\n{}", parameters,
      network.kernel_size, network.dropout, recipe.l2, training::describe_batch(ranks, recipe.batch_size),
      recipe.momentum, schedule.peak,
      schedule.warmup_epochs > 0 ? fmt::format(" from {} over {} epochs", schedule.base, schedule.warmup_epochs) : "",
      recipe.seed, recipe.places());
  if (!recipe.without_effect.empty()) {
    lines += fmt::format("\nwithout effect here: {} (docs/guide/workloads.md says why)",
                         fmt::join(recipe.without_effect, ", "));
  }
  return lines;
}

}  // namespace

training::Outcome run_training(Recipe recipe, train::GradientExchange& exchange) {
  training::check_global_batch(recipe, exchange.size());
  training::check_data_dir(recipe, "cosmo");
  const std::uint64_t global_batch = recipe.batch_size * static_cast<std::uint64_t>(exchange.size());
  const auto train_set = open_set(recipe.data_dir / "train", recipe.n_train, recipe, "n_train");
  const auto valid_set = open_set(recipe.data_dir / "validation", recipe.n_valid, recipe, "n_valid");
  if (recipe.network.size == 0) recipe.network.size = size_of_volumes(*train_set.samples, recipe.network);
  const models::Layers layers = models::cosmoflow(recipe.network);
  data::Loader train(train_set.samples, fields_of(recipe), train_options(recipe, *train_set.samples, exchange));
  data::Loader valid(valid_set.samples, fields_of(recipe), training::test_loader(recipe, exchange));
  CosmoflowTask task(recipe, layers);
  train::Sgd optimizer(decayed(task.parameters(), recipe.l2),
                       {.momentum = recipe.momentum, .convention = train::MomentumConvention::kKeras});
  const train::EpochSchedule schedule = schedule_of(recipe, global_batch);
  if (exchange.rank() == 0 && recipe.verbose > 0) {
    training::say(announcement(recipe, models::parameter_count(layers), schedule, train_set.samples->count(),
                               valid_set.samples->count(), exchange.size()));
  }
  training::RunIdentity identity{.recipe = result_options(recipe, exchange.size()), .samples = train_set.digests};
  training::Trainer trainer(recipe, std::move(identity), exchange, task, optimizer, schedule, {&train}, valid);
  return trainer.run();
}

}  // namespace gyre::cosmoflow
