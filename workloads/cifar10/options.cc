#include "workloads/cifar10/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gyre/cli/number_check.h"
#include "gyre/cli/program_options.h"
#include "workloads/training/consistency_option.h"
#include "workloads/training/image_options.h"

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

--data-dir contains CIFAR-10's files, in the binary or Python layout; or folders train and test with one folder of JPEG or
PNG images per class; or TFRecord, Parquet, tar or IDX files named train-* and test-*. With --validation-share it is the
folder with one folder per class, or contains it as train. Images of another size are resized; of images that are not
square the centre is used.
exit codes: 0 success, 1 failure, 2 invalid options, 3 (rank 0 only) target accuracy not reached)";

void add_places(CLI::App& app, Options& options) {
  app.add_option("--data-dir", options.data_dir, "Folder with the images; required")->type_name("DIR");
  app.add_option("--output-dir", options.output_dir, "Folder for checkpoints and TensorBoard files")
      ->capture_default_str()
      ->type_name("DIR");
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "Folder for checkpoints (OUTPUT-DIR/checkpoints)")
      ->type_name("DIR");
  app.add_option("--tensorboard-dir", options.tensorboard_dir, "Folder for event files (OUTPUT-DIR/tensorboard)")
      ->type_name("DIR");
  training::add_checkpoint_options(app, options, {"loss", "accuracy"});
}

void add_images(CLI::App& app, Options& options, std::vector<std::string>& augment) {
  app.add_option("--image-size", options.image_size, "Pixels per side")
      ->check(CLI::Range(kLeastImageSize, kMostImageSize))
      ->capture_default_str();
  app.add_option("--classes", options.classes, "Number of classes; counted for an image folder")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  training::add_validation_share(app, options.validation_share);
  app.add_option("--threads", options.threads, "Threads that load images")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--augment", augment, "Random changes to training images: flip, shift; repeatable")
      ->check(CLI::IsMember({"flip", "shift"}))
      ->allow_extra_args(false);
}

void add_recipe(CLI::App& app, Options& options, std::string& compat) {
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Train up to this epoch")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Learning rate of RMSprop")
      ->check([](const std::string& text) { return cli::check_rate(text, false); })
      ->capture_default_str();
  app.add_option("--decay", options.decay, "Rate at step i is lr / (1 + decay * i)")
      ->check([](const std::string& text) { return cli::check_rate(text, true); })
      ->capture_default_str();
  app.add_flag("--scale-lr", options.scale_learning_rate, "Multiply the learning rate by the number of ranks");
  app.add_option("--warmup-epochs", options.warmup_epochs,
                 "Epochs over which the rate rises to the scaled one, step by step")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the initial weights, dropout and augmentation")
      ->capture_default_str();
  app.add_option("--shuffle-seed", options.shuffle_seed, "Seed of the order of the images (default: --seed)");
  training::add_consistency_option(app, options.consistency);
  app.add_flag("--drop-last", options.drop_last, "Drop the last, incomplete global batch of an epoch");
  app.add_option("--compat", compat, "smarker: every rank processes all images, as the article's script does")
      ->check(CLI::IsMember({"smarker"}));
}

void add_reporting(CLI::App& app, Options& options) {
  app.add_option("--verbose", options.verbose, "0: nothing, 1: progress bar, 2: one line per epoch")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("--target-accuracy", options.target_accuracy,
                 "Stop when the test accuracy reaches this value (0 to 1)")
      ->check(cli::check_share);
  app.add_flag("--print-hashes", options.print_hashes, "Every rank prints the hash of its state after each step");
  app.add_flag("--check-replicas", options.check_replicas, "Compare the ranks' state after each step, not each epoch");
  app.add_option("--play-ranks", options.play_ranks, "One process does the work of this many ranks (for comparisons)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

}  // namespace

std::map<std::string, std::string> result_options(const Options& options, int ranks) {
  return {{"--batch-size", fmt::format("{}", options.batch_size)},
          {"--lr", fmt::format("{}", options.learning_rate)},
          {"--decay", fmt::format("{}", options.decay)},
          {"--scale-lr", fmt::format("{}", options.scale_learning_rate)},
          {"--warmup-epochs", fmt::format("{}", options.warmup_epochs)},
          {"--seed", fmt::format("{}", options.seed)},
          {"--shuffle-seed", fmt::format("{}", options.effective_shuffle_seed())},
          {"--augment", fmt::format("{}{}", options.flip ? "flip " : "", options.shift ? "shift" : "")},
          {"--drop-last", fmt::format("{}", options.drop_last)},
          {"--image-size", fmt::format("{}", options.image_size)},
          {"--classes", fmt::format("{}", options.classes)},
          {"--validation-share", fmt::format("{}", options.validation_share.value_or(0))},
          {"--consistency", options.consistency},
          {"--compat smarker", fmt::format("{}", options.every_rank_all_images)},
          {"ranks", fmt::format("{}", ranks)}};
}

ParsedOptions parse_options(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> augment;
  std::string compat;
  CLI::App app(kDescription, "gyre-cifar10");
  app.footer(kFooter);
  app.set_version_flag("--version", GYRE_VERSION);
  add_places(app, options);
  add_images(app, options, augment);
  add_recipe(app, options, compat);
  add_reporting(app, options);
  const auto ended = cli::parse_program_options(app, argc, argv, training::former_option_names(), [&] {
    // Not required(), which is looked at before words that are no options.
    if (options.data_dir.empty()) throw CLI::RequiredError("--data-dir");
  });
  if (ended) return {std::nullopt, *ended};
  for (const std::string& word : augment) (word == "flip" ? options.flip : options.shift) = true;
  options.every_rank_all_images = compat == "smarker";
  if (options.checkpoint_dir.empty()) options.checkpoint_dir = options.output_dir / "checkpoints";
  if (options.tensorboard_dir.empty()) options.tensorboard_dir = options.output_dir / "tensorboard";
  return {options, 0};
}

}  // namespace gyre::cifar10
