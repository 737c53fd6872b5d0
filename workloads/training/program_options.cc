#include "workloads/training/program_options.h"

#include <fmt/format.h>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/cli/number_check.h"
#include "gyre/models/dropout.h"
#include "gyre/params/consistency.h"

namespace gyre::training {
namespace {

constexpr std::int64_t kMostCount = std::int64_t{1} << 48;

/// CLI11's way to report a mistake: what is wrong, or nothing.
std::string mistake_in_consistency(const std::string& text) {
  try {
    params::parse_consistency(text);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void add_places(CLI::App& app, ProgramOptions& options, const char* data_dir) {
  app.add_option("--data-dir", options.data_dir, data_dir)->type_name("DIR");
  app.add_option("--output-dir", options.output_dir, "Folder for checkpoints and TensorBoard files")
      ->capture_default_str()
      ->type_name("DIR");
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "Folder for checkpoints (OUTPUT-DIR/checkpoints)")
      ->type_name("DIR");
  app.add_option("--tensorboard-dir", options.tensorboard_dir, "Folder for event files (OUTPUT-DIR/tensorboard)")
      ->type_name("DIR");
}

void add_checkpoints(CLI::App& app, ProgramOptions& options, const std::vector<std::string>& best_metrics) {
  app.add_flag("--resume", options.resume, "Resume from the newest complete checkpoint, if any");
  app.add_flag("--resume-changed", options.resume_changed,
               "Resume even if the global batch, the files, their order, the classes or the workers have changed, and "
               "say what follows");
  app.add_option("--keep-checkpoints", options.keep_checkpoints, "Number of newest checkpoints to keep")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--checkpoint-steps", options.checkpoint_steps, "Also save every N steps; 0: only after epochs")
      ->check(CLI::Range(std::int64_t{0}, kMostCount))
      ->capture_default_str();
  app.add_option("--keep-best", options.keep_best,
                 "Also keep the epoch that is best by this metric of the evaluation, as best-METRIC.safetensors")
      ->check(CLI::IsMember(best_metrics))
      ->type_name("METRIC");
}

void add_loading(CLI::App& app, ProgramOptions& options) {
  app.add_option("--threads", options.threads, fmt::format("Threads that load {}", options.samples))
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--memory-budget",
         [&options](const std::string& text) { options.memory_budget_bytes = parse_bytes(text, "--memory-budget"); },
         "Memory for each loader, such as 512MB or 2GB (1GB)")
      ->type_name("BYTES");
}

void add_training(CLI::App& app, ProgramOptions& options) {
  app.add_option("--batch-size", options.batch_size, "Samples per rank and step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Train up to this epoch")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--warmup-epochs", options.warmup_epochs,
                 "Epochs over which the learning rate rises to the scaled one")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--seed", options.seed,
                 "Seed of all that is random: initial weights, dropout, augmentation, the order of samples")
      ->check(cli::check_unsigned)
      ->capture_default_str();
  app.add_option("--consistency", options.consistency,
                 fmt::format("How the workers keep together: {}; all but sync and local need `gyre run --servers`",
                             params::kConsistencyForms))
      ->check(mistake_in_consistency)
      ->capture_default_str()
      ->type_name("FORM");
}

void add_reporting(CLI::App& app, ProgramOptions& options) {
  app.add_option("--verbose", options.verbose, "0: nothing, 1: progress bar, 2: one line per epoch")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_flag("--print-hashes", options.print_hashes, "Every rank prints the hash of its state after each step");
  app.add_flag("--print-samples", options.print_samples, "Every rank prints the numbers of each step's samples");
  app.add_flag("--check-replicas", options.check_replicas, "Compare the ranks' state after each step, not each epoch");
}

}  // namespace

const cli::FormerNames& former_option_names() {
  static const cli::FormerNames kNames = {{"--model-dir", "--output-dir"},  // Of gyre-cifar10 and gyre-resnet50.
                                          {"--n-epochs", "--epochs"},       // These are also the public benchmark's.
                                          {"--n-warmup-epochs", "--warmup-epochs"}};
  return kNames;
}

void add_program_options(CLI::App& app, ProgramOptions& options, const char* data_dir,
                         const std::vector<std::string>& best_metrics) {
  app.set_version_flag("--version", GYRE_VERSION);
  add_places(app, options, data_dir);
  add_checkpoints(app, options, best_metrics);
  add_loading(app, options);
  add_training(app, options);
  add_reporting(app, options);
}

std::map<std::string, std::string> result_options(const ProgramOptions& options, int ranks) {
  return {{"--batch-size", fmt::format("{}", options.batch_size)},
          {"--warmup-epochs", fmt::format("{}", options.warmup_epochs)},
          {"--seed", fmt::format("{}", options.seed)},
          {"--consistency", options.consistency},
          {"ranks", fmt::format("{}", ranks)}};
}

void require_data_dir(ProgramOptions& options) {
  if (options.data_dir.empty()) throw CLI::RequiredError("--data-dir");
  options.open_data(options);
}

void open_local_data(ProgramOptions& options) {
  if (options.data_dir.string().find("://") == std::string::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--data-dir {}: this build of the program reads folders of this machine only; `./dev build` "
                          "builds the one that reads URLs",
                          options.data_dir.string()));
}

void check_data_dir(const ProgramOptions& options, std::string_view example) {
  const std::string folder = options.data_dir.string();
  switch (options.files.folders().kind(folder)) {
    case data::FileKind::kFolder: return;
    case data::FileKind::kMissing:
      throw Error(ErrorCode::kNotFound,
                  fmt::format("the data folder {} does not exist; `python -m gyre.datasets {} --out FOLDER` writes one",
                              folder, example));
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--data-dir is {}, which is a file: give the folder that holds the data", folder));
  }
}

void check_global_batch(const ProgramOptions& options, int ranks) {
  if (options.batch_size * static_cast<std::uint64_t>(ranks) <= models::kMostPositions) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("a global batch of {} x {} {} is more than {}", ranks,
                                                       options.batch_size, options.samples, models::kMostPositions));
}

data::LoaderOptions test_loader(const ProgramOptions& options, const train::GradientExchange& exchange) {
  return {.sampling = {.seed = options.seed,
                       .shuffling = data::Shuffling::kNone,
                       .ranks = exchange.size(),
                       .batch_per_rank = options.batch_size,
                       .remainder = data::Remainder::kPad},
          .rank = exchange.rank(),
          .threads = options.threads,
          .memory_budget_bytes = options.memory_budget_bytes,
          .read_ahead_bytes = options.read_ahead_bytes};
}

data::LoaderOptions training_loader(const ProgramOptions& options, const data::SampleSet& set,
                                    const train::GradientExchange& exchange) {
  const bool full = set.advice_on_full_shuffle(options.memory_budget_bytes).empty();
  data::LoaderOptions how = test_loader(options, exchange);
  how.sampling.shuffling = full ? data::Shuffling::kFull : data::Shuffling::kBlocks;
  return how;
}

}  // namespace gyre::training
