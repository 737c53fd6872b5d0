#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/data/tensorboard.h"
#include "gyre/metrics/pipe.h"
#include "gyre/train/checkpoint.h"
#include "gyre/train/gradient_exchange.h"
#include "workloads/training/metric.h"
#include "workloads/training/run_lock.h"
#include "workloads/training/sample_digests.h"

namespace gyre::training {

/// Where a run stands, as names and finite numbers: "epoch", "step", "samples", …. In checkpoints they are text. Names
/// with a slash ("here/position") are about the epoch in which it stopped: zero if that has to begin again. Where
/// "here/position" is zero, they are about the epoch that is finished.
using Progress = std::vector<std::pair<std::string, double>>;

/// What has to be as it was when a run goes on, if its result is to be that of a run that never stopped.
struct Sameness {
  std::string key;        ///< In checkpoints.
  std::string name;       ///< In messages: "the global batch".
  std::string value;      ///< Empty where it is unknown.
  std::string meaning;    ///< What follows if it is not: a sentence without its full stop.
  bool of_order = false;  ///< The order of the samples depends on it: the epoch begins again.
};

/// What a person says of the traces that a run leaves.
struct RunOptions {
  std::string program;  ///< In messages and checkpoints.
  std::filesystem::path output_dir;
  std::filesystem::path checkpoint_dir;   ///< Empty: output_dir/checkpoints.
  std::filesystem::path tensorboard_dir;  ///< Empty: output_dir/tensorboard.
  std::uint64_t keep_checkpoints = 3;
  bool resume = false;          ///< Go on from the newest whole checkpoint, if there is one.
  bool resume_changed = false;  ///< The same, also where it cannot go on as if it had never stopped.
  int verbose = 1;              ///< 0 nothing, 1 progress bar and a line per epoch, 2 the lines only: as Keras has it.

  std::filesystem::path checkpoints() const {
    return checkpoint_dir.empty() ? output_dir / "checkpoints" : checkpoint_dir;
  }
  std::filesystem::path curves() const {
    return tensorboard_dir.empty() ? output_dir / "tensorboard" : tensorboard_dir;
  }
  /// The option that says where checkpoints are.
  std::string_view checkpoints_option() const { return checkpoint_dir.empty() ? "--output-dir" : "--checkpoint-dir"; }
  /// "checkpoints go to run/checkpoints, curves for TensorBoard to run/tensorboard"
  std::string places() const;
};

/// What a run is, apart from its place and length: kept in checkpoints and compared when it goes on.
struct RunIdentity {
  std::map<std::string, std::string> recipe;  ///< What changes the results, as names and values.
  DigestSamples samples;                      ///< Called on rank 0.
  std::vector<std::string> classes{};         ///< Their names, by label, where the data says them.
  std::vector<Sameness> same{};               ///< Besides classes and samples.
};

/// What a run leaves behind and goes on from: rank 0 reads and writes the folders, the others receive its state. Where
/// each rank's optimizer is its own (GradientExchange::replicas_are_equal()), the others keep its tensors in folders
/// worker-RANK of the checkpoints. Not thread-safe.
class RunState {
 public:
  /// What a checkpoint holds: the network's parameters and buffers, without autograd, and the optimizer's tensors; they
  /// share memory with those in use. The exchange must outlive this.
  RunState(const RunOptions& options, RunIdentity identity, train::GradientExchange& exchange,
           train::NamedTensors network, train::NamedTensors optimizer);

  /// Collective, once, after the exchange has been attached: restored from the newest checkpoint or as it is, rank 0's
  /// state becomes everybody's, and so does its `progress`, whose names stay. A rank that has kept an optimizer of its
  /// own with that checkpoint continues with it; one that has not says so. On rank 0 alone: Error(kInvalidArgument)
  /// where another run uses the folder (RunLock), before anything else is touched; where checkpoints of an earlier run
  /// lie there and `resume` was not asked for, or only its best epochs or its workers' checkpoints;
  /// Error(kMismatch) where they are another program's or another network's, or the run cannot go on as it was and
  /// `resume_changed` was not asked for; those of checkpoint.h.
  /// Checkpoints with values that are not finite are passed over.
  void start_or_resume(Progress& progress);

  /// Writes checkpoint `number`: on rank 0, and on the others where they keep their own.
  void save(std::uint64_t number, const Progress& progress);
  /// The same behind an epoch that is still to be evaluated and reported: until note_reported(), the file `unreported`
  /// has the checkpoint's number.
  void save_epoch(std::uint64_t number, const Progress& progress);
  void note_reported() const;
  /// Whether that was called for the checkpoint with which the run continues. On rank 0.
  bool is_reported() const;
  /// Keeps the present state as best-METRIC.safetensors if `value` is better than that of the file that is there. On
  /// rank 0; elsewhere nothing.
  void keep_if_best(const Metric& metric, double value, const Progress& progress) const;
  /// On rank 0; elsewhere nothing.
  void add_scalars(std::uint64_t step, std::span<const data::Scalar> scalars);

  /// This rank's copy of what is saved.
  const train::NamedTensors& tensors() const { return state_; }
  /// The checkpoint written last, or the one that the run has continued from; on every rank.
  std::optional<std::filesystem::path> newest() const;

  std::uint64_t hash() const { return train::hash_tensors(state_); }

 private:
  void refuse_leftovers() const;
  void load(const train::CheckpointFolder::Found& found, Progress& progress) const;
  void refuse_others(const train::Checkpoint& saved) const;
  void restore_network(const train::Checkpoint& saved) const;
  void restore_exchange(const train::Checkpoint& saved) const;
  std::vector<std::string> unused_tensors(const train::Checkpoint& saved) const;
  void report_unused(const train::Checkpoint& saved) const;
  std::vector<Sameness> samenesses() const;
  /// Of the samples: the later ones say more. Those of rank 0, as it has computed them; elsewhere they are unknown.
  std::vector<Sameness> samples_samenesses() const;
  /// What is not as it was, and what follows, in words; and whether the order of the samples is another one.
  struct Changes {
    std::string text;
    bool of_order = false;
  };
  Changes changes_since(const train::Checkpoint& saved) const;
  /// "--lr was '0.1' before the checkpoint and is '0.01' now", of each option that is another one.
  std::vector<std::string> changed_options(const train::Checkpoint& saved) const;
  train::Checkpoint checkpoint_of(const Progress& progress) const;
  /// Of a worker whose replica is not equal to the others.
  std::filesystem::path own_folder() const;
  void load_own(std::uint64_t number);

  const RunOptions options_;
  const RunIdentity identity_;
  std::optional<RunLock> lock_;  // Of rank 0, as long as anything is written.
  SampleDigests samples_;        // Of rank 0.
  train::GradientExchange& exchange_;
  train::NamedTensors state_;  // All of it.
  train::NamedTensors optimizer_;
  train::NamedTensors exchange_state_;                  // Empty before start_or_resume().
  std::optional<train::CheckpointFolder> checkpoints_;  // Of rank 0, or where this one keeps its own.
  std::optional<std::uint64_t> newest_;
  std::unique_ptr<data::TensorboardWriter> tensorboard_;  // Rank 0 only.
  std::shared_ptr<metrics::Logger> metrics_;              // Rank 0 only, under `gyre run --metrics`.
};

}  // namespace gyre::training
