#include "workloads/cifar10/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/program_options.h"

namespace gyre::cifar10 {
namespace {

constexpr std::int64_t kLeastImageSize = 10;  // Leaves one value of each channel behind the last pooling.
constexpr std::int64_t kMostImageSize = 1024;

constexpr const char* kDescription =
    "Trains the CIFAR-10 network (1,250,858 parameters for 10 classes of 32x32 images) on one rank, or on many when "
    "started by `gyre run`.";

constexpr const char* kFooter = R"(
examples:
  python -m gyre.datasets digits --out digits
  gyre run -n 4 -- gyre-cifar10 --data-dir digits --lr 0.001 --epochs 30 --target-accuracy 0.95
  gyre-cifar10 --data-dir cifar-10-batches-bin --output-dir run1 --epochs 25 --augment flip --augment shift
  gyre-cifar10 --data-dir cifar-10-batches-bin --output-dir run1 --epochs 50 --resume
  gyre run -n 4 -- gyre-cifar10 --data-dir satellite --validation-share 0.1 --image-size 64 --augment flip

--data-dir contains CIFAR-10's files, in the binary or Python layout; or folders train and validation (or val, valid, test;
in any case) with one folder of JPEG or PNG images per class; or TFRecord, Parquet, tar or IDX files named train-* and
validation-* (or val-*, …). With --validation-share it is the folder with one folder per class, or contains it as train.
Images of another size are resized; of images that are not square the centre is used.
exit codes: 0 success, 1 failure, 2 invalid options, 3 (rank 0 only) target accuracy not reached)";

void add_recipe(CLI::App& app, Options& options) {
  app.add_option("--lr", options.learning_rate, "Learning rate of RMSprop")
      ->check([](const std::string& text) { return cli::check_rate(text, false); })
      ->capture_default_str();
  app.add_option("--decay", options.decay, "Rate at step i is lr / (1 + decay * i)")
      ->check([](const std::string& text) { return cli::check_rate(text, true); })
      ->capture_default_str();
  app.add_flag("--scale-lr", options.scale_learning_rate, "Multiply the learning rate by the number of ranks");
  app.add_option("--shuffle-seed", options.shuffle_seed, "Seed of the order of the images (default: --seed)")
      ->check(cli::check_unsigned);
  app.add_flag("--drop-last", options.drop_last, "Drop the last, incomplete global batch of an epoch");
  app.add_option_function<std::vector<std::string>>(
         "--augment",
         [&options](const std::vector<std::string>& changes) {
           for (const std::string& change : changes) (change == "flip" ? options.flip : options.shift) = true;
         },
         "Random changes to training images: flip, shift; repeatable")
      ->check(CLI::IsMember({"flip", "shift"}))
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--compat", [&options](const std::string& /*smarker*/) { options.every_rank_all_images = true; },
         "smarker: every rank processes all images, as the article's script does")
      ->check(CLI::IsMember({"smarker"}));
  app.add_option("--play-ranks", options.play_ranks, "One process does the work of this many ranks (for comparisons)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

void check_played_ranks(const Options& options) {
  if (options.play_ranks == 1 || !options.every_rank_all_images) return;
  throw Error(ErrorCode::kInvalidArgument, "--play-ranks divides the images among ranks; --compat smarker does not");
}

}  // namespace

Options::Options() {
  program = "gyre-cifar10";
  samples = "images";
  output_dir = "gyre-cifar10";
  epochs = 10;
  image_size = 32;
  classes = 10;
}

std::map<std::string, std::string> result_options(const Options& options, int ranks) {
  std::map<std::string, std::string> record = {
      {"--lr", fmt::format("{}", options.learning_rate)},
      {"--decay", fmt::format("{}", options.decay)},
      {"--scale-lr", fmt::format("{}", options.scale_learning_rate)},
      {"--shuffle-seed", fmt::format("{}", options.effective_shuffle_seed())},
      {"--augment", fmt::format("{}{}", options.flip ? "flip " : "", options.shift ? "shift" : "")},
      {"--drop-last", fmt::format("{}", options.drop_last)},
      {"--compat", options.every_rank_all_images ? "smarker" : ""}};
  record.merge(training::result_options(options, ranks));
  return record;
}

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, options.program);
  app.footer(kFooter);
  training::add_program_options(app, options, "Folder with the images; required", {"loss", "accuracy"});
  training::add_image_options(app, options, kLeastImageSize, kMostImageSize);
  add_recipe(app, options);
  return cli::parse_program_options(app, argc, argv, training::former_option_names(), [&] {
    training::require_data_dir(options);
    check_played_ranks(options);
  });
}

}  // namespace gyre::cifar10
