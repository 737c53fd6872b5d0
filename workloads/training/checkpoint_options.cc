#include "workloads/training/checkpoint_options.h"

#include <algorithm>

#include "gyre/base/check.h"

namespace gyre::training {

const cli::FormerNames& former_option_names() {
  static const cli::FormerNames names = {{"--model-dir", "--output-dir"},  // Of gyre-cifar10 and gyre-resnet50.
                                         {"--n-epochs", "--epochs"},       // These are also the public benchmark's.
                                         {"--n-warmup-epochs", "--warmup-epochs"}};
  return names;
}

void add_checkpoint_options(CLI::App& app, CheckpointOptions& options, const std::vector<std::string>& metrics) {
  app.add_flag("--resume", options.resume, "Resume from the newest complete checkpoint, if any");
  app.add_flag("--resume-changed", options.resume_changed,
               "The same, although the global batch, the files, their order or the classes are not as they were");
  app.add_option("--keep-checkpoints", options.keep_checkpoints, "Number of newest checkpoints to keep")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--checkpoint-steps", options.checkpoint_steps, "Also save every N steps; 0: only after epochs")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 48))
      ->capture_default_str();
  app.add_option("--keep-best", options.keep_best,
                 "Also keep the epoch that is best by this metric of the evaluation, as best-METRIC.safetensors")
      ->check(CLI::IsMember(metrics))
      ->type_name("METRIC");
  app.add_flag("--print-samples", options.print_samples, "Every rank prints the numbers of each step's samples");
}

void apply(const CheckpointOptions& options, std::span<const std::string_view> metrics, TrainerOptions& trainer) {
  trainer.run.resume = options.resume || options.resume_changed;
  trainer.run.resume_changed = options.resume_changed;
  trainer.run.keep_checkpoints = options.keep_checkpoints;
  trainer.checkpoint_steps = options.checkpoint_steps;
  trainer.print_samples = options.print_samples;
  if (options.keep_best.empty()) return;
  const auto found = std::ranges::find(metrics, options.keep_best);
  GYRE_CHECK(found != metrics.end());
  trainer.keep_best = {.metric = static_cast<std::size_t>(found - metrics.begin()),
                       .lowest = options.keep_best == "loss" || options.keep_best == "mae"};
}

}  // namespace gyre::training
