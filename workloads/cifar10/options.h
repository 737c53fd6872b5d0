#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "workloads/training/image_options.h"

namespace gyre::cifar10 {

/// Everything that gyre-cifar10 can be told. The defaults are those of the article's script.
struct Options : training::ImageProgramOptions {
  Options();

  double learning_rate = 1e-4;
  double decay = 1e-6;
  bool scale_learning_rate = false;
  std::optional<std::uint64_t> shuffle_seed;
  bool flip = false;
  bool shift = false;
  bool drop_last = false;
  bool every_rank_all_images = false;  ///< --compat smarker.
  int play_ranks = 1;                  ///< This one process does the work of so many ranks, one after the other.

  std::uint64_t effective_shuffle_seed() const { return shuffle_seed.value_or(seed); }
};

/// The options that change what is computed, as names and values: kept in checkpoints and compared on --resume.
std::map<std::string, std::string> result_options(const Options& options, int ranks);

/// Into `options`. Returns the exit code with which to end at once (0 after --help, 2 after a mistake, which has been
/// printed), or nothing.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace gyre::cifar10
