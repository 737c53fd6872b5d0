#include "workloads/resnet50/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/program_options.h"
#include "workloads/training/consistency_option.h"
#include "workloads/training/image_options.h"

namespace gyre::resnet50 {
namespace {

constexpr const char* kDescription =
    "Trains ResNet-50 (v1.5, 25,557,032 parameters) or a deeper variant on one rank, or on many when started by `gyre "
    "run`.";

constexpr const char* kFooter = R"(
examples:
  python -m gyre.datasets imagenet --out imagenet --size 64 --train 4096 --validation 512
  gyre run -n 2 -- gyre-resnet50 --data-dir imagenet --image-size 64 --classes 10 --epochs 10 --warmup-epochs 1
  gyre run -n 4 -- gyre-resnet50 --data-dir photos --validation-share 0.1
  gyre run -n 4 -- gyre-resnet50 --synthetic --batch-size 32

--data-dir contains TFRecord files train-* and validation-* with ImageNet's keys, Parquet files with these names and the
columns image and label, tar archives with these names, or folders train and validation with one folder per class. With
--validation-share it is the folder with one folder per class, or contains it as train.
exit codes: 0 success, 1 failure, 2 invalid options, 3 (rank 0 only) target accuracy not reached)";

constexpr std::int64_t kMostCount = std::int64_t{1} << 48;

struct Given {
  std::string memory_budget;
  std::string version = "v1.5";
  std::string lines = "horovod";
  std::string decay_epochs;
};

void add_places(CLI::App& app, Options& options, Given& given) {
  app.add_option("--data-dir", options.data_dir, "Folder with the images; required unless --synthetic")
      ->type_name("DIR");
  app.add_option("--output-dir", options.output_dir, "Folder for checkpoints and TensorBoard files")
      ->capture_default_str()
      ->type_name("DIR");
  training::add_validation_share(app, options.validation_share);
  training::add_checkpoint_options(app, options, {"loss", "accuracy", "top5"});
  app.add_option("--threads", options.threads, "Threads that load images")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--memory-budget", given.memory_budget, "Memory for the loader: 512MB, 2GB (1GB)")->type_name("BYTES");
}

void add_network(CLI::App& app, Options& options, Given& given) {
  app.add_option("--depth", options.network.depth, "50, 101 or 152 layers; 14 or 26 for tests")
      ->check(CLI::IsMember({14, 26, 50, 101, 152}))
      ->capture_default_str();
  app.add_option("--resnet-version", given.version, "v1: stride in the first 1x1 convolution, v1.5: in the 3x3")
      ->check(CLI::IsMember({"v1", "v1.5"}))
      ->capture_default_str();
  app.add_option("--classes", options.network.classes, "Number of classes; counted for an image folder")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--image-size", options.image_size, "Pixels per side")
      ->check(CLI::Range(32, 4096))
      ->capture_default_str();
}

void add_recipe(CLI::App& app, Options& options, Given& given) {
  const auto rate = [](const std::string& text) { return cli::check_rate(text, true); };
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Train up to this epoch")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Learning rate for a global batch of 256 images; scaled linearly")
      ->check(rate)
      ->capture_default_str();
  app.add_option("--warmup-epochs", options.warmup_epochs, "Epochs from that rate to the scaled one, step by step")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--decay-epochs", given.decay_epochs, "Epochs at which the rate is divided by ten (30,60,80)")
      ->type_name("EPOCHS");
  app.add_option("--momentum", options.momentum, "Nesterov's")->check(cli::check_share)->capture_default_str();
  app.add_option("--weight-decay", options.weight_decay, "Weight decay of all parameters except batch normalisation")
      ->check(rate)
      ->capture_default_str();
  app.add_option("--label-smoothing", options.label_smoothing,
                 "Label smoothing: share of the target spread over all classes")
      ->check(cli::check_share)
      ->capture_default_str();
  app.add_option("--target-accuracy", options.target_accuracy,
                 "Stop when the validation accuracy reaches this value (0 to 1)")
      ->check(cli::check_share);
  app.add_option("--seed", options.seed, "Seed of the initial weights, augmentation and the order of images")
      ->capture_default_str();
  app.add_option("--verbose", options.verbose, "0: nothing, 1: progress bar, 2: one line per epoch")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  training::add_consistency_option(app, options.consistency);
  app.add_flag("--check-replicas", options.check_replicas, "Compare the ranks' parameters after each step");
}

void add_benchmark(CLI::App& app, Options& options, Given& given) {
  const auto count = CLI::Range(std::int64_t{1}, kMostCount);
  app.add_flag("--synthetic", options.synthetic,
               "Measure images per second on one random batch; reads and saves nothing");
  app.add_option("--lines", given.lines, "Output format of --synthetic: horovod or tf_cnn_benchmarks")
      ->check(CLI::IsMember({"horovod", "tf_cnn_benchmarks"}))
      ->capture_default_str();
  app.add_option("--num-warmup-batches", options.warmup_batches, "Of --synthetic")->check(count)->capture_default_str();
  app.add_option("--num-batches-per-iter", options.batches_per_iteration, "Of --synthetic")
      ->check(count)
      ->capture_default_str();
  app.add_option("--num-iters", options.iterations, "Of --synthetic")->check(count)->capture_default_str();
}

void merge(const Given& given, Options& options) {
  options.network.version = given.version == "v1" ? models::ResnetVersion::kV1 : models::ResnetVersion::kV15;
  options.lines = given.lines == "horovod" ? BenchmarkLines::kHorovod : BenchmarkLines::kTfCnnBenchmarks;
  if (!given.memory_budget.empty()) options.memory_budget_bytes = parse_bytes(given.memory_budget, "--memory-budget");
  if (given.decay_epochs.empty()) return;
  options.decay_epochs.clear();
  for (const std::string& epoch : split(given.decay_epochs, ',')) {
    options.decay_epochs.push_back(static_cast<std::uint64_t>(parse_integer(epoch, "--decay-epochs", 1, kMostCount)));
    const std::size_t last = options.decay_epochs.size() - 1;
    if (last > 0 && options.decay_epochs[last] <= options.decay_epochs[last - 1]) {
      throw Error(ErrorCode::kInvalidArgument, "--decay-epochs have to ascend");
    }
  }
}

}  // namespace

void check_batch(std::uint64_t batch_size, std::int64_t image_size) {
  constexpr std::int64_t kReduction = 32;  // Along each side: a first convolution, a pooling and three stages halve it.
  if (batch_size > 1 || image_size > kReduction) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--batch-size 1 with images of {} pixels leaves batch normalisation one value per channel, "
                          "which has no variance: use a batch of at least 2, or --image-size {} or more",
                          image_size, kReduction + 1));
}

std::map<std::string, std::string> result_options(const Options& options, int ranks) {
  return {{"--batch-size", fmt::format("{}", options.batch_size)},
          {"--depth", fmt::format("{}", options.network.depth)},
          {"--resnet-version", options.network.version == models::ResnetVersion::kV1 ? "v1" : "v1.5"},
          {"--classes", fmt::format("{}", options.network.classes)},
          {"--image-size", fmt::format("{}", options.image_size)},
          {"--lr", fmt::format("{}", options.learning_rate)},
          {"--warmup-epochs", fmt::format("{}", options.warmup_epochs)},
          {"--decay-epochs", fmt::format("{}", fmt::join(options.decay_epochs, ","))},
          {"--momentum", fmt::format("{}", options.momentum)},
          {"--weight-decay", fmt::format("{}", options.weight_decay)},
          {"--label-smoothing", fmt::format("{}", options.label_smoothing)},
          {"--seed", fmt::format("{}", options.seed)},
          {"--validation-share", fmt::format("{}", options.validation_share.value_or(0))},
          {"ranks", fmt::format("{}", ranks)}};
}

ParsedOptions parse_options(int argc, const char* const* argv) {
  Options options;
  Given given;
  CLI::App app(kDescription, "gyre-resnet50");
  app.footer(kFooter);
  app.set_version_flag("--version", GYRE_VERSION);
  add_places(app, options, given);
  add_network(app, options, given);
  add_recipe(app, options, given);
  add_benchmark(app, options, given);
  const auto ended = cli::parse_program_options(app, argc, argv, training::former_option_names(), [&] {
    try {
      merge(given, options);
    } catch (const Error& error) {
      throw CLI::ValidationError(error.what());
    }
    if (options.data_dir.empty() && !options.synthetic) throw CLI::RequiredError("--data-dir");
  });
  if (ended) return {std::nullopt, *ended};
  return {options, 0};
}

}  // namespace gyre::resnet50
