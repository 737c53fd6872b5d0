#include "workloads/cosmoflow/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/program_options.h"
#include "workloads/training/consistency_option.h"

namespace gyre::cosmoflow {
namespace {

constexpr const char* kDescription =
    "Trains the CosmoFlow network of MLPerf HPC on one rank, or on many when started by `gyre run`.";

constexpr const char* kFooter = R"(
examples:
  python -m gyre.datasets cosmo --out cosmo --size 32 --train 1024 --validation 256
  gyre run -n 2 -- gyre-cosmoflow --data-dir cosmo --output-dir run1 --base-batch-size 8 --lr 0.005 --augment
  gyre run -n 2 -- gyre-cosmoflow configs/cosmo.yaml --data-dir cosmo --target-mae 0.124

CONFIG is a YAML file of the public benchmark (mlcommons/hpc, cosmoflow/configs); options override it.
exit codes: 0 success, 1 failure, 2 invalid options, 3 (rank 0 only) target not reached)";

constexpr std::int64_t kMostCount = std::int64_t{1} << 48;

/// What the command line says; what it does not say is the file's, or the recipe's own.
struct Given {
  std::string config;
  std::string data_dir;
  std::string output_dir;
  std::string memory_budget;
  std::optional<std::uint64_t> n_train, n_valid, samples_per_file, batch_size, n_epochs;
  std::optional<std::uint64_t> base_batch_size, n_warmup_epochs;
  std::optional<std::int64_t> kernel_size, conv_size, fc1_size, fc2_size;
  std::optional<double> dropout, l2, lr, target_mae;
  std::optional<int> apply_log;
  std::optional<std::string> activation, optimizer;
  std::vector<CLI::Option*> without_effect;
};

/// Options of the benchmark's own script. What some of them ask for is always done, the others have no effect.
struct BenchmarkOption {
  const char* name;
  bool takes_value;
  bool always_done;
  const char* help;
};
constexpr std::array kBenchmarkOptions = {
    BenchmarkOption{"-d,--distributed", false, true, "The launcher says so"},
    BenchmarkOption{"-v", false, true, "See --verbose"},
    BenchmarkOption{"--tensorboard", false, true, "Always done"},
    BenchmarkOption{"--deterministic-ops", false, true, "Always so"},
    BenchmarkOption{"--run-tag", true, false, "Of Weights & Biases"},
    BenchmarkOption{"--wandb", false, false, "Nothing is sent to Weights & Biases"},
    BenchmarkOption{"--mlperf", false, false, "No MLPerf log is written"},
    BenchmarkOption{"--print-fom", false, false, "The loss is in each epoch's line"},
    BenchmarkOption{"--stage-dir", true, false, "Nothing is copied; the loader reads ahead"},
    BenchmarkOption{"--n-parallel-reads", true, false, "See --threads"},
    BenchmarkOption{"--prefetch", true, false, "See --memory-budget"},
    BenchmarkOption{"--gpu", true, false, "Trains on CPUs"},
    BenchmarkOption{"--rank-gpu", false, false, "Trains on CPUs"},
    BenchmarkOption{"--amp", false, false, "Computes in float32"},
    BenchmarkOption{"--intra-threads", true, false, "OMP_NUM_THREADS says how many"},
    BenchmarkOption{"--inter-threads", true, false, "OMP_NUM_THREADS says how many"},
    BenchmarkOption{"--omp-num-threads", true, false, "Set OMP_NUM_THREADS"},
    BenchmarkOption{"--kmp-blocktime", true, false, "Set KMP_BLOCKTIME"},
    BenchmarkOption{"--kmp-affinity", true, false, "Set KMP_AFFINITY"},
};

template <typename T>
void take(const std::optional<T>& given, T& value) {
  if (given) value = *given;
}

void add_places(CLI::App& app, Given& given, Recipe& recipe) {
  app.add_option("config", given.config, "A configuration of the public benchmark")->type_name("CONFIG");
  app.add_option("--data-dir", given.data_dir, "Folder with folders train and validation of TFRecord files; required")
      ->type_name("DIR");
  app.add_option("--output-dir", given.output_dir, "Folder for checkpoints and TensorBoard files (results/cosmo-000)")
      ->type_name("DIR");
  training::add_checkpoint_options(app, recipe, {"loss", "mae"});
}

void add_data(CLI::App& app, Given& given, Recipe& recipe) {
  const auto count = CLI::Range(std::int64_t{1}, kMostCount);
  app.add_option("--n-train", given.n_train, "Train only with the first N samples (all)")->check(count);
  app.add_option("--n-valid", given.n_valid, "Validate only with the first N samples (all)")->check(count);
  app.add_option("--samples-per-file", given.samples_per_file, "Records per file (1)")->check(count);
  app.add_option("--batch-size", given.batch_size, "Volumes per rank and step (4)")->check(CLI::Range(1, 1 << 20));
  app.add_option("--epochs", given.n_epochs, "Train up to this epoch (128)")->check(CLI::Range(1, 1'000'000));
  app.add_option("--apply-log", given.apply_log, "1: log(1 + x); 0: divide each volume by its mean (1)")
      ->check(CLI::IsMember({0, 1}));
  app.add_flag("--augment", recipe.augment, "Rotate and mirror each training volume at random: 48 symmetries");
  app.add_option("--threads", recipe.threads, "Threads that load data")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--memory-budget", given.memory_budget, "Memory for the loader: 512MB, 2GB (1GB)")->type_name("BYTES");
}

void add_recipe(CLI::App& app, Given& given, Recipe& recipe) {
  const auto size = CLI::Range(1, 1 << 20);
  const auto rate = [](const std::string& text) { return cli::check_rate(text, true); };
  app.add_option("--kernel-size", given.kernel_size, "Kernel size of the convolutions: 3 in version 1.0, 2 in 0.7 (3)")
      ->check(size);
  app.add_option("--conv-size", given.conv_size, "Channels of the first convolution (32)")->check(size);
  app.add_option("--fc1-size", given.fc1_size, "Units of the first dense layer (128)")->check(size);
  app.add_option("--fc2-size", given.fc2_size, "Units of the second dense layer (64)")->check(size);
  app.add_option("--dropout", given.dropout, "Dropout after the dense layers: from 0 to below 1 (0.5)")->check(rate);
  app.add_option("--l2", given.l2, "Keras' L2 factor of the hidden dense layers (0)")->check(rate);
  app.add_option("--lr", given.lr, "Base learning rate, before scaling (0.001)")->check(rate);
  app.add_option("--base-batch-size", given.base_batch_size,
                 "Global batch of that rate, which is scaled linearly from there (64)")
      ->check(CLI::Range(std::int64_t{1}, kMostCount));
  app.add_option("--warmup-epochs", given.n_warmup_epochs, "Epochs from the base to the scaled rate (4)")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--target-mae", given.target_mae, "Stop when the validation MAE is this low; MLPerf's target is 0.124")
      ->check(rate);
  app.add_option("--seed", recipe.seed, "Seed of the initial weights, dropout and the order of samples")
      ->capture_default_str();
  app.add_option("--verbose", recipe.verbose, "0: nothing, 1: progress bar, 2: one line per epoch")
      ->check(CLI::Range(0, 2))
      ->expected(0, 1)  // The benchmark's is a flag.
      ->capture_default_str();
  training::add_consistency_option(app, recipe.consistency);
  app.add_flag("--check-replicas", recipe.check_replicas, "Compare the ranks' parameters after each step");
}

void add_benchmarks_own(CLI::App& app, Given& given) {
  constexpr const char* kGroup = "Accepted for scripts of the benchmark, without effect";
  for (const BenchmarkOption& own : kBenchmarkOptions) {
    CLI::Option* const option = own.takes_value ? app.add_option(own.name, own.help) : app.add_flag(own.name, own.help);
    option->group(kGroup);
    if (!own.always_done) given.without_effect.push_back(option);
  }
  app.add_option("--hidden-activation", given.activation, "LeakyReLU, the only one here")
      ->check(CLI::IsMember({"LeakyReLU"}))
      ->group(kGroup);
  app.add_option("--optimizer", given.optimizer, "SGD, the only one here")
      ->check(CLI::IsMember({"SGD"}))
      ->group(kGroup);
}

void merge(const Given& given, Recipe& recipe) {
  for (const CLI::Option* option : given.without_effect) {
    if (option->count() > 0) recipe.without_effect.push_back(option->get_name());
  }
  if (!given.data_dir.empty()) recipe.data_dir = given.data_dir;
  if (!given.output_dir.empty()) recipe.output_dir = given.output_dir;
  if (!given.memory_budget.empty()) recipe.memory_budget_bytes = parse_bytes(given.memory_budget, "--memory-budget");
  take(given.n_train, recipe.n_train);
  take(given.n_valid, recipe.n_valid);
  take(given.samples_per_file, recipe.samples_per_file);
  take(given.batch_size, recipe.batch_size);
  take(given.n_epochs, recipe.n_epochs);
  take(given.base_batch_size, recipe.base_batch_size);
  take(given.n_warmup_epochs, recipe.n_warmup_epochs);
  take(given.kernel_size, recipe.network.kernel_size);
  take(given.conv_size, recipe.network.conv_size);
  take(given.fc1_size, recipe.network.fc1_size);
  take(given.fc2_size, recipe.network.fc2_size);
  take(given.dropout, recipe.network.dropout);
  take(given.l2, recipe.l2);
  take(given.lr, recipe.base_lr);
  if (given.target_mae) recipe.target_mae = given.target_mae;
  if (given.apply_log) recipe.apply_log = *given.apply_log != 0;
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  Recipe recipe;
  Given given;
  CLI::App app(kDescription, "gyre-cosmoflow");
  app.footer(kFooter);
  app.set_version_flag("--version", GYRE_VERSION);
  add_places(app, given, recipe);
  add_data(app, given, recipe);
  add_recipe(app, given, recipe);
  add_benchmarks_own(app, given);
  const auto ended = cli::parse_program_options(app, argc, argv, training::former_option_names(), [&] {
    try {
      if (!given.config.empty()) read_config(given.config, recipe);
      merge(given, recipe);
    } catch (const Error& error) {
      throw CLI::ValidationError(error.what());
    }
    if (recipe.data_dir.empty()) throw CLI::RequiredError("--data-dir");
  });
  if (ended) return {std::nullopt, *ended};
  return {recipe, 0};
}

}  // namespace gyre::cosmoflow
