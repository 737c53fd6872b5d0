#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/loader.h"
#include "gyre/train/gradient_exchange.h"
#include "gyre/train/learning_rate.h"
#include "gyre/train/optimizer.h"
#include "workloads/training/divergence.h"
#include "workloads/training/epoch_report.h"
#include "workloads/training/metric.h"
#include "workloads/training/run_position.h"
#include "workloads/training/run_state.h"
#include "workloads/training/survivors.h"
#include "workloads/training/task.h"

namespace gyre::training {

/// When a run may stop early: the metric of this name over the test set is as good as `value`.
struct Target {
  std::string metric;
  double value = 0;
};

struct TrainerOptions : RunOptions {
  std::string samples = "samples";   ///< What they are called in messages: "images", "volumes".
  std::string consistency = "sync";  ///< How the workers keep together: see params::parse_consistency().
  std::uint64_t epochs = 1;          ///< Up to this one, counting those before a resume.
  /// Save a checkpoint after so many steps too, not only after each epoch. 0: after epochs alone.
  std::uint64_t checkpoint_steps = 0;
  bool check_replicas = false;  ///< Compare the ranks' parameters after each step, not only after each epoch.
  bool print_hashes = false;    ///< Every rank prints the hash of its state after each step.
  bool print_samples = false;   ///< Every rank prints the numbers of each step's samples.
  std::optional<Target> target{};
  std::string keep_best{};  ///< Keep the state of the epoch that is best by this metric as well. Empty: none.
};

struct Outcome {
  std::uint64_t epochs = 0;      ///< Finished, counting those before a resume.
  std::vector<double> train;     ///< The last epoch's metrics, means over all ranks' samples.
  std::vector<double> test;      ///< Over the test set, after the last epoch.
  bool target_reached = false;   ///< False when no target was given.
  std::string missed;            ///< The sentence about a target that was not reached; empty: there is none.
  std::uint64_t state_hash = 0;  ///< Of parameters, buffers and optimizer: equal for equal runs, on rank 0.
};

/// Trains a task together with the other ranks: epochs over the train loader, an evaluation after each, checkpoints,
/// curves, and a run that goes on at the sample at which it stopped. Rank 0 prints and writes. Where the exchange goes
/// on without ranks that have died, the others notice it at the end of an epoch or before a checkpoint within one, say
/// so, and share all samples from there on. What the dead ranks have trained since such a moment is not counted.
class Trainer {
 public:
  /// All must outlive it. The loaders are this rank's: those of `train`, at least one, in a sampler's order, as many on
  /// every rank as it has work of ranks to do; `test` unshuffled and padded, for exchange.size() ranks.
  Trainer(const TrainerOptions& options, RunIdentity identity, train::GradientExchange& exchange, Task& task,
          train::Optimizer& optimizer, train::EpochSchedule schedule, std::vector<data::Loader*> train,
          data::Loader& test);

  /// Collective. Errors are those of its parts.
  Outcome run();

 private:
  bool talks() const { return exchange_.rank() == 0 && options_.verbose > 0; }
  MetricSums no_sums() const { return MetricSums(task_.metrics().size()); }
  /// Over the ranks that are left, which is noted, and shares the samples among them.
  MetricSums reduced(MetricSums sums);
  void share_among_survivors();
  /// `together`: what reduced() has made of the epoch so far. Reports what the dead have left out.
  void count_samples(const MetricSums& together);
  Progress progress(const MetricSums& sums) const;
  void start_or_resume();
  MetricSums train_epoch();
  /// Collective, after the first whole epoch. Says which classes no sample has had: most often --classes is too large.
  void report_untrained_classes();
  /// `keeps_batch`: see last_batch_.
  void train_step(MetricSums& sums, bool keeps_batch);
  /// Returns how many samples the step has on all ranks.
  std::uint64_t compute_gradients(data::Loader& loader, MetricSums& step, bool keeps_batch);
  void check_step() const;
  /// Again, where a rank has died with its part of the test set.
  MetricSums evaluate();
  void check_replicas() const;
  /// Whether a checkpoint follows the step that comes next, the first of `left` in this epoch.
  bool saves_after_step(std::uint64_t left) const;
  void check_before_saving(bool evaluates);
  std::string advice() const;
  /// True where ranks have died, and the rest of the epoch is shared anew: start_loaders().
  bool save_within_epoch(MetricSums& sums);
  /// Begins to read the rest of the epoch. Returns its steps.
  std::uint64_t start_loaders();
  void report_epoch(const MetricSums& trained, const MetricSums& tested);
  void keep_if_best(const MetricSums& tested) const;
  /// Of the step that comes next.
  double learning_rate() const;
  /// Which of the task's metrics it is.
  std::size_t metric_called(std::string_view name) const;
  bool reached(const MetricSums& tested) const;

  const TrainerOptions options_;
  train::GradientExchange& exchange_;
  Task& task_;
  train::Optimizer& optimizer_;
  train::EpochSchedule schedule_;
  std::vector<data::Loader*> train_;
  data::Loader& test_;
  RunState state_;
  Divergence divergence_;
  RunPosition position_;
  EpochReport report_;
  Survivors survivors_;
  bool has_seen_all_ = false;              // A whole epoch of samples, since the start or a resume.
  std::vector<int> died_;                  // Since the samples were last counted.
  std::uint64_t counted_position_ = 0;     // Of the epoch's order, up to which samples have been counted …
  double counted_samples_ = 0;             // … and how many.
  std::optional<data::Batch> last_batch_;  // This rank's, of the step before a checkpoint, until that is written.
  MetricSums resumed_;  // Of the epoch in which, or behind which, a resumed run had stopped: on rank 0 alone.
};

}  // namespace gyre::training
