#include "workloads/cosmoflow/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "gyre/cli/number_check.h"
#include "gyre/cli/program_options.h"

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

void add_data(CLI::App& app, Recipe& recipe) {
  const auto count = CLI::Range(std::int64_t{1}, kMostCount);
  app.add_option("--n-train", recipe.n_train, "Train only with the first N samples (all)")->check(count);
  app.add_option("--n-valid", recipe.n_valid, "Validate only with the first N samples (all)")->check(count);
  app.add_option("--samples-per-file", recipe.samples_per_file, "Records per file")
      ->check(count)
      ->capture_default_str();
  app.add_option("--apply-log", recipe.apply_log, "1: log(1 + x); 0: divide each volume by its mean (1)")
      ->check(CLI::IsMember({0, 1}));
  app.add_flag("--augment", recipe.augment, "Rotate and mirror each training volume at random: 48 symmetries");
}

void add_recipe(CLI::App& app, Recipe& recipe) {
  const auto size = CLI::Range(1, 1 << 20);
  const auto rate = [](const std::string& text) { return cli::check_rate(text, true); };
  models::CosmoflowOptions& network = recipe.network;
  app.add_option("--kernel-size", network.kernel_size, "Kernel size of the convolutions: 3 in version 1.0, 2 in 0.7")
      ->check(size)
      ->capture_default_str();
  app.add_option("--conv-size", network.conv_size, "Channels of the first convolution")
      ->check(size)
      ->capture_default_str();
  app.add_option("--fc1-size", network.fc1_size, "Units of the first dense layer")->check(size)->capture_default_str();
  app.add_option("--fc2-size", network.fc2_size, "Units of the second dense layer")->check(size)->capture_default_str();
  app.add_option("--dropout", network.dropout, "Dropout after the dense layers: from 0 to below 1")
      ->check(rate)
      ->check([](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value < 1 ? "" : fmt::format("'{}' is not below 1", text);
      })
      ->capture_default_str();
  app.add_option("--l2", recipe.l2, "Keras' L2 factor of the hidden dense layers")->check(rate)->capture_default_str();
  app.add_option("--lr", recipe.base_lr, "Base learning rate, before scaling")->check(rate)->capture_default_str();
  app.add_option("--base-batch-size", recipe.base_batch_size,
                 "Global batch of that rate, which is scaled linearly from there")
      ->check(CLI::Range(std::int64_t{1}, kMostCount))
      ->capture_default_str();
  app.add_option_function<double>(
         "--target-mae", [&recipe](double value) { recipe.target = {.metric = "mae", .value = value}; },
         "Stop when the validation MAE is this low; MLPerf's target is 0.124")
      ->check(rate);
}

void add_benchmarks_own(CLI::App& app, Recipe& recipe) {
  constexpr const char* kGroup = "Accepted for scripts of the benchmark, without effect";
  for (const BenchmarkOption& own : kBenchmarkOptions) {
    const auto note = [&recipe, own] {
      if (!own.always_done) recipe.without_effect.emplace_back(own.name);
    };
    CLI::Option* const option = own.takes_value
                                    ? app.add_option_function<std::string>(
                                          own.name, [note](const std::string& /*value*/) { note(); }, own.help)
                                    : app.add_flag_callback(own.name, note, own.help);
    option->group(kGroup);
  }
  const auto only = [&app](const char* name, const char* help, const char* value) {
    app.add_option_function<std::string>(
           name, [](const std::string& /*value*/) {}, help)
        ->check(CLI::IsMember({value}))
        ->group(kGroup);
  };
  only("--hidden-activation", "LeakyReLU, the only one here", "LeakyReLU");
  only("--optimizer", "SGD, the only one here", "SGD");
}

/// The options into `recipe`, and the name of the file that stands among them into `config`.
std::optional<int> read_options(int argc, const char* const* argv, Recipe& recipe, std::string& config,
                                const std::function<void()>& complete) {
  CLI::App app(kDescription, recipe.program);
  app.footer(kFooter);
  app.add_option("config", config, "A configuration of the public benchmark")->type_name("CONFIG");
  training::add_program_options(app, recipe, "Folder with folders train and validation of TFRecord files; required",
                                {"loss", "mae"});
  app.get_option("--verbose")->expected(0, 1);  // The benchmark's is a flag.
  add_data(app, recipe);
  add_recipe(app, recipe);
  add_benchmarks_own(app, recipe);
  return cli::parse_program_options(app, argc, argv, training::former_option_names(), complete);
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Recipe& recipe) {
  std::string config;
  Recipe of_file = recipe;
  // Once for mistakes among the options and to find the file, and again over the file's values.
  const std::optional<int> ended = read_options(argc, argv, recipe, config, [&] {
    if (!config.empty()) read_config(config, of_file);
  });
  if (ended) return ended;
  recipe = of_file;
  return read_options(argc, argv, recipe, config, [&] { training::require_data_dir(recipe); });
}

}  // namespace gyre::cosmoflow
