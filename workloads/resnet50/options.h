#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/models/resnet.h"
#include "workloads/training/image_options.h"

namespace gyre::resnet50 {

/// Whose lines the synthetic benchmark prints.
enum class BenchmarkLines { kHorovod, kTfCnnBenchmarks };

/// Everything that gyre-resnet50 can be told. The defaults are the recipe of Goyal et al. (arXiv 1706.02677).
struct Options : training::ImageProgramOptions {
  Options();

  bool synthetic = false;  ///< There is no data_dir then.
  BenchmarkLines lines = BenchmarkLines::kHorovod;
  std::uint64_t warmup_batches = 10;  ///< Of the synthetic benchmark, as the next two.
  std::uint64_t batches_per_iteration = 10;
  std::uint64_t iterations = 10;

  int depth = 50;
  models::ResnetVersion version = models::ResnetVersion::kV15;
  double learning_rate = 0.1;                              ///< For a global batch of 256 images; it grows linearly.
  std::vector<std::uint64_t> decay_epochs = {30, 60, 80};  ///< From these on a tenth of before.
  double momentum = 0.9;
  bool nesterov = true;
  double weight_decay = 1e-4;  ///< Not of batch normalisation.
  double label_smoothing = 0;

  models::Layers layers() const { return models::resnet({.depth = depth, .version = version, .classes = classes}); }
  const char* version_name() const { return version == models::ResnetVersion::kV1 ? "v1" : "v1.5"; }
};

/// Error(kInvalidArgument) where batch normalisation would have one value per channel, whose variance is zero: one
/// image per rank, of which the last stage leaves one pixel.
void check_batch(std::uint64_t batch_size, std::int64_t image_size);

/// The options that change what is computed, as names and values: kept in checkpoints and compared on --resume.
std::map<std::string, std::string> result_options(const Options& options, int ranks);

/// Into `options`. Returns the exit code with which to end at once (0 after --help, 2 after a mistake, which has been
/// printed), or nothing.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace gyre::resnet50
