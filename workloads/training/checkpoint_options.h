#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/cli/program_options.h"
#include "workloads/training/trainer.h"

namespace gyre::training {

/// What all programs can be told of their checkpoints.
struct CheckpointOptions {
  bool resume = false;
  bool resume_changed = false;  ///< Implies `resume`.
  std::uint64_t keep_checkpoints = 3;
  std::uint64_t checkpoint_steps = 0;
  std::string keep_best;  ///< A metric; empty: none.
  bool print_samples = false;
};

/// Options that each program once had under a name of its own.
const cli::FormerNames& former_option_names();

/// `metrics`: those that tell which epoch is best.
void add_checkpoint_options(CLI::App& app, CheckpointOptions& options, const std::vector<std::string>& metrics);

/// Put into `trainer`, whose task has these `metrics`. The lowest loss or mean absolute error is the best, and the
/// highest of all other metrics.
void apply(const CheckpointOptions& options, std::span<const std::string_view> metrics, TrainerOptions& trainer);

}  // namespace gyre::training
