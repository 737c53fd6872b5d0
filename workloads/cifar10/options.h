#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "workloads/training/checkpoint_options.h"

namespace gyre::cifar10 {

/// Everything that gyre-cifar10 can be told. The defaults are those of the article's script.
struct Options : training::CheckpointOptions {
  std::filesystem::path data_dir;
  std::filesystem::path output_dir = "gyre-cifar10";
  std::filesystem::path checkpoint_dir;   ///< Empty: output_dir/checkpoints.
  std::filesystem::path tensorboard_dir;  ///< Empty: output_dir/tensorboard.

  int threads = 1;                         ///< Of each rank, that load images.
  std::uint64_t batch_size = 32;           ///< Per rank.
  std::int64_t image_size = 32;            ///< Pixels along each side.
  std::int64_t classes = 10;               ///< Where the data does not say how many.
  std::optional<double> validation_share;  ///< Of the training set, held out for testing; nothing: there is a test set.
  std::uint64_t epochs = 10;
  double learning_rate = 1e-4;
  double decay = 1e-6;
  bool scale_learning_rate = false;
  std::uint64_t warmup_epochs = 0;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> shuffle_seed;
  bool flip = false;
  bool shift = false;
  bool drop_last = false;
  bool every_rank_all_images = false;  ///< --compat smarker.

  int verbose = 1;  ///< 0 nothing, 1 progress bar and a line per epoch, 2 the lines only: as Keras has it.
  std::optional<double> target_accuracy;
  bool print_hashes = false;
  std::string consistency = "sync";  ///< See params::parse_consistency().
  bool check_replicas = false;
  int play_ranks = 1;  ///< This one process does the work of so many ranks, one after the other.

  std::uint64_t effective_shuffle_seed() const { return shuffle_seed.value_or(seed); }
};

/// The options that change what is computed, as names and values: kept in checkpoints and compared on --resume.
std::map<std::string, std::string> result_options(const Options& options, int ranks);

/// The options, or the exit code with which to end at once (0 after --help, 2 after a mistake, which has been printed).
struct ParsedOptions {
  std::optional<Options> options;
  int exit_code = 0;
};
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace gyre::cifar10
