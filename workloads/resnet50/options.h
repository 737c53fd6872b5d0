#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/models/resnet.h"
#include "workloads/training/checkpoint_options.h"

namespace gyre::resnet50 {

/// Whose lines the synthetic benchmark prints.
enum class BenchmarkLines { kHorovod, kTfCnnBenchmarks };

/// Everything that gyre-resnet50 can be told. The defaults are the recipe of Goyal et al. (arXiv 1706.02677).
struct Options : training::CheckpointOptions {
  std::filesystem::path data_dir;  ///< With train and validation; empty with --synthetic.
  std::filesystem::path output_dir = "gyre-resnet50";
  bool synthetic = false;
  BenchmarkLines lines = BenchmarkLines::kHorovod;
  std::uint64_t warmup_batches = 10;  ///< Of the synthetic benchmark, as the next two.
  std::uint64_t batches_per_iteration = 10;
  std::uint64_t iterations = 10;

  models::ResnetOptions network;
  std::int64_t image_size = 224;
  std::uint64_t batch_size = 32;  ///< Per rank.
  std::uint64_t epochs = 90;
  double learning_rate = 0.1;  ///< For a global batch of 256 images; it grows linearly.
  std::uint64_t warmup_epochs = 5;
  std::vector<std::uint64_t> decay_epochs = {30, 60, 80};  ///< From these on a tenth of before.
  double momentum = 0.9;
  bool nesterov = true;
  double weight_decay = 1e-4;  ///< Not of batch normalisation.
  double label_smoothing = 0;
  std::optional<double> target_accuracy;
  std::optional<double> validation_share;  ///< Of the training set, held out; nothing: there is a validation set.

  std::uint64_t seed = 1;
  int threads = 1;
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int verbose = 1;
  std::string consistency = "sync";  ///< See params::parse_consistency().
  bool check_replicas = false;
};

/// Error(kInvalidArgument) where batch normalisation would have one value per channel, whose variance is zero: one
/// image per rank, of which the last stage leaves one pixel.
void check_batch(std::uint64_t batch_size, std::int64_t image_size);

/// The options that change what is computed, as names and values: kept in checkpoints and compared on --resume.
std::map<std::string, std::string> result_options(const Options& options, int ranks);

/// The options, or the exit code with which to end at once (0 after --help, 2 after a mistake, which has been printed).
struct ParsedOptions {
  std::optional<Options> options;
  int exit_code = 0;
};
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace gyre::resnet50
