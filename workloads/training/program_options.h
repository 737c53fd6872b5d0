#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gyre/cli/program_options.h"
#include "gyre/data/loader.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"
#include "gyre/train/gradient_exchange.h"
#include "workloads/training/trainer.h"

namespace gyre::training {

struct ProgramOptions;

/// Opens what `data_dir` names for reading: sets `files` and `read_ahead_bytes`, and takes out of `data_dir` what is
/// secret in it. open_local_data(), or open_data_anywhere() (data_sources.h), which needs more libraries.
using OpenData = void (*)(ProgramOptions& options);

/// For folders of this machine, which `files` reads anyway. Error(kInvalidArgument) for a URL.
void open_local_data(ProgramOptions& options);

/// What every training program can be told. Those of one program derive from these, and begin with its name and its
/// defaults.
struct ProgramOptions : TrainerOptions {
  std::filesystem::path data_dir;
  OpenData open_data = open_local_data;
  data::FileOpener files = data::open_local_file;  ///< How what lies below `data_dir` is read.
  std::uint64_t read_ahead_bytes = 0;              ///< What that takes of each loader's budget.
  std::uint64_t batch_size = 32;                   ///< Per rank.
  std::uint64_t warmup_epochs = 0;
  std::uint64_t seed = 1;
  int threads = 1;                                             ///< Of each rank, that load samples.
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;  ///< Of each loader.
};

/// Options that each program once had under a name of its own.
const cli::FormerNames& former_option_names();

/// All of them, with the present values as defaults, and --version. `data_dir`: what that option's help says.
/// `best_metrics`: those that tell which epoch is best.
void add_program_options(CLI::App& app, ProgramOptions& options, const char* data_dir,
                         const std::vector<std::string>& best_metrics);

/// Those of these options that change what is computed, as names and values: kept in checkpoints and compared when a
/// run goes on. Programs add those of their own.
std::map<std::string, std::string> result_options(const ProgramOptions& options, int ranks);

/// Opens --data-dir (`open_data`). CLI::RequiredError where there is no --data-dir. Not CLI11's required(), which is
/// looked at before words that are no options.
void require_data_dir(ProgramOptions& options);

/// Error(kNotFound) where there is no --data-dir, kInvalidArgument where it is not a folder. `example`: the data set of
/// gyre.datasets that would do.
void check_data_dir(const ProgramOptions& options, std::string_view example);

/// Error(kInvalidArgument) where dropout cannot tell the samples of a global batch apart.
void check_global_batch(const ProgramOptions& options, int ranks);

/// How this rank reads a set for evaluations: all of it, in its order.
data::LoaderOptions test_loader(const ProgramOptions& options, const train::GradientExchange& exchange);

/// How it reads `set` for training: shuffled, in blocks where the set advises against a full shuffle.
data::LoaderOptions training_loader(const ProgramOptions& options, const data::SampleSet& set,
                                    const train::GradientExchange& exchange);

}  // namespace gyre::training
