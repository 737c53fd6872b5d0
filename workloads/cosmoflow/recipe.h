#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gyre/models/cosmoflow.h"
#include "workloads/training/program_options.h"

namespace gyre::cosmoflow {

/// How the learning rate grows with the global batch.
enum class Scaling { kNone, kLinear, kSqrt };

/// Everything that gyre-cosmoflow can be told. The defaults are those of MLPerf HPC's configuration of version 1.0.
/// `data_dir` has the folders train and validation, of TFRecord files.
struct Recipe : training::ProgramOptions {
  Recipe();

  std::uint64_t n_train = 0;  ///< Samples; 0: all that are there.
  std::uint64_t n_valid = 0;
  std::uint64_t samples_per_file = 1;
  bool apply_log = true;  ///< log(1 + x); false: divided by the volume's mean.
  bool augment = false;   ///< Each volume turned and mirrored at random, anew in every epoch.

  models::CosmoflowOptions network{.size = 0};  ///< size 0: that of the first volume.
  double l2 = 0;                                ///< Keras' factor of the two hidden dense layers' squared weights.

  double momentum = 0.9;
  double base_lr = 0.001;
  Scaling scaling = Scaling::kLinear;
  std::uint64_t base_batch_size = 64;
  /// After which epoch, counted from 0, the peak rate has which factor.
  std::map<std::uint64_t, double> decay_schedule = {{32, 0.25}, {64, 0.125}};

  /// What the configuration or the command line says and this program has no use for, by name: mlperf, data.prefetch, …
  std::vector<std::string> without_effect;
};

/// The rate after the warm-up.
double peak_learning_rate(const Recipe& recipe, std::uint64_t global_batch);

/// A configuration of the public benchmark (mlcommons/hpc, cosmoflow/configs), put into `recipe`. Errors name the file,
/// the line and what would be right: kInvalidArgument for unknown names and for values that mean something that this
/// program does not do; kNotFound, kIo.
void read_config(const std::filesystem::path& path, Recipe& recipe);

/// What changes the results, as names and values: kept in checkpoints and compared on --resume.
std::map<std::string, std::string> result_options(const Recipe& recipe, int ranks);

}  // namespace gyre::cosmoflow
