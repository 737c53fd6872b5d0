#include "workloads/resnet50/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/program_options.h"

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
columns image and label, tar archives with these names, or folders train and validation with one folder per class; val,
valid and test stand for validation, in any case. With --validation-share it is the folder with one folder per class, or
contains it as train.
exit codes: 0 success, 1 failure, 2 invalid options, 3 (rank 0 only) target accuracy not reached)";

constexpr std::int64_t kLeastImageSize = 32;
constexpr std::int64_t kMostImageSize = 4096;
constexpr std::int64_t kMostCount = std::int64_t{1} << 48;

std::vector<std::uint64_t> parse_decay_epochs(const std::string& text) {
  std::vector<std::uint64_t> epochs;
  for (const std::string& epoch : split(text, ',')) {
    epochs.push_back(static_cast<std::uint64_t>(parse_integer(epoch, "--decay-epochs", 1, kMostCount)));
  }
  if (std::ranges::adjacent_find(epochs, std::greater_equal()) != epochs.end()) {
    throw Error(ErrorCode::kInvalidArgument, "--decay-epochs have to ascend");
  }
  return epochs;
}

void add_network(CLI::App& app, Options& options) {
  app.add_option("--depth", options.depth, "50, 101 or 152 layers; 14 or 26 for tests")
      ->check(CLI::IsMember({14, 26, 50, 101, 152}))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--resnet-version",
         [&options](const std::string& name) {
           options.version = name == "v1" ? models::ResnetVersion::kV1 : models::ResnetVersion::kV15;
         },
         "v1: stride in the first 1x1 convolution, v1.5: in the 3x3")
      ->check(CLI::IsMember({"v1", "v1.5"}))
      ->default_str(options.version_name());
}

void add_recipe(CLI::App& app, Options& options) {
  const auto rate = [](const std::string& text) { return cli::check_rate(text, true); };
  app.add_option("--lr", options.learning_rate, "Learning rate for a global batch of 256 images; scaled linearly")
      ->check(rate)
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--decay-epochs", [&options](const std::string& text) { options.decay_epochs = parse_decay_epochs(text); },
         "Epochs at which the rate is divided by ten (30,60,80)")
      ->type_name("EPOCHS");
  app.add_option("--momentum", options.momentum, "Nesterov's")->check(cli::check_share)->capture_default_str();
  app.add_option("--weight-decay", options.weight_decay, "Weight decay of all parameters except batch normalisation")
      ->check(rate)
      ->capture_default_str();
  app.add_option("--label-smoothing", options.label_smoothing,
                 "Label smoothing: share of the target spread over all classes")
      ->check(cli::check_share)
      ->capture_default_str();
}

void add_benchmark(CLI::App& app, Options& options) {
  const auto count = CLI::Range(std::int64_t{1}, kMostCount);
  app.add_flag("--synthetic", options.synthetic,
               "Measure images per second on one random batch; reads and saves nothing");
  app.add_option_function<std::string>(
         "--lines",
         [&options](const std::string& name) {
           options.lines = name == "horovod" ? BenchmarkLines::kHorovod : BenchmarkLines::kTfCnnBenchmarks;
         },
         "Output format of --synthetic: horovod or tf_cnn_benchmarks")
      ->check(CLI::IsMember({"horovod", "tf_cnn_benchmarks"}))
      ->default_str("horovod");
  app.add_option("--num-warmup-batches", options.warmup_batches, "Of --synthetic")->check(count)->capture_default_str();
  app.add_option("--num-batches-per-iter", options.batches_per_iteration, "Of --synthetic")
      ->check(count)
      ->capture_default_str();
  app.add_option("--num-iters", options.iterations, "Of --synthetic")->check(count)->capture_default_str();
}

}  // namespace

Options::Options() {
  program = "gyre-resnet50";
  samples = "images";
  output_dir = "gyre-resnet50";
  epochs = 90;
  warmup_epochs = 5;
  image_size = 224;
  classes = 1000;
}

void check_batch(std::uint64_t batch_size, std::int64_t image_size) {
  constexpr std::int64_t kReduction = 32;  // Along each side: a first convolution, a pooling and three stages halve it.
  if (batch_size > 1 || image_size > kReduction) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--batch-size 1 with images of {} pixels leaves batch normalisation one value per channel, "
                          "which has no variance: use a batch of at least 2, or --image-size {} or more",
                          image_size, kReduction + 1));
}

std::map<std::string, std::string> result_options(const Options& options, int ranks) {
  std::map<std::string, std::string> record = {
      {"--depth", fmt::format("{}", options.depth)},
      {"--resnet-version", options.version_name()},
      {"--lr", fmt::format("{}", options.learning_rate)},
      {"--decay-epochs", fmt::format("{}", fmt::join(options.decay_epochs, ","))},
      {"--momentum", fmt::format("{}", options.momentum)},
      {"--weight-decay", fmt::format("{}", options.weight_decay)},
      {"--label-smoothing", fmt::format("{}", options.label_smoothing)}};
  record.merge(training::result_options(options, ranks));
  return record;
}

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, options.program);
  app.footer(kFooter);
  training::add_program_options(app, options, "Folder with the images; required unless --synthetic",
                                {"loss", "accuracy", "top5"});
  training::add_image_options(app, options, kLeastImageSize, kMostImageSize);
  add_network(app, options);
  add_recipe(app, options);
  add_benchmark(app, options);
  return cli::parse_program_options(app, argc, argv, training::former_option_names(), [&] {
    if (!options.synthetic) training::require_data_dir(options);
    check_batch(options.batch_size, options.image_size);
  });
}

}  // namespace gyre::resnet50
