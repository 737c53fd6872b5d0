#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/params/internal/step_notes.h"
#include "gyre/params/internal/table_shard.h"
#include "gyre/params/ledger.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// The parameters that one server owns, with their optimizer's state and a place for each worker's gradients: memory of
/// the server's own, or where the worker has them (SharedValues). Blocks are numbered within the shard; its part of
/// each table is a block, too, after the others. Thread-safe as said; each worker has one thread here at a time.
class Shard {
 public:
  /// `setup` has been checked.
  Shard(const TrainingSetup& setup, int server, int workers);

  std::size_t blocks() const { return blocks_.size() + tables_.size(); }
  /// Those that are no tables; the first ones.
  std::size_t dense_blocks() const { return blocks_.size(); }
  bool is_table(std::size_t block) const { return block >= blocks_.size(); }
  TableShard& table(std::size_t block) const { return *tables_.at(block - blocks_.size()); }
  const TrainingSetup& setup() const { return setup_; }
  std::size_t values_of_all_servers() const { return values_of_all_servers_; }
  /// Its number among all servers' blocks.
  std::size_t number_of(std::size_t block) const {
    return is_table(block) ? blocks_of_all_servers_ + block - blocks_.size() : blocks_[block]->number;
  }

  /// `values`: what this server shares with the worker, for the blocks of all servers. Before the worker's first step.
  void share(int worker, std::span<float> values);
  /// Begins a step of the worker. `in_place`: its gradients lie in the shared values. Error(kInvalidArgument) where the
  /// optimizer's options cannot follow those of its step before.
  void begin_step(int worker, bool in_place, StepNotes notes);
  /// Where the worker's gradient of this block lies, or is to be received. Not read before hand_in().
  std::span<std::byte> gradient_place(int worker, std::size_t block);
  /// While no worker is in a step.
  void set(std::size_t block, std::span<const float> values);

  /// The gradient stands in its place: updates the block if it is time, and says who may have answers now. Errors of
  /// Ledger; kMismatch where workers step with different options in sync.
  std::vector<Ledger::Answer> hand_in(int worker, std::size_t block);
  std::vector<Ledger::Answer> leave(int worker);
  std::vector<Ledger::Answer> lose(int worker);
  std::vector<Ledger::Answer> pause(int worker);
  void resume(int worker);

  /// With a quorum, instead of hand_in(): the worker's gradient of a table is checked …
  void check_gradient(int worker, std::size_t block) const;
  /// … all stand in their places, and the quorum has decided that these workers' are the step.
  void apply(std::span<const int> contributors);

  /// In sync the values of an answer stay until the worker has handed in its next gradient of that block, which it does
  /// after it has the answer, unless a step can do without it.
  bool values_stay() const {
    return setup_.consistency.kind == Consistency::kSync && !setup_.consistency.needs_quorum();
  }
  /// Whether workers only get the average of their own gradients. If all of their steps are in place, values() does not
  /// hold it.
  bool averages_only() const { return setup_.rule() == Rule::kAverage && values_stay(); }
  std::span<const float> values(std::size_t block) const { return blocks_.at(block)->values; }
  /// A copy that is of one version, also where others update the block. The worker sees this version from now on.
  void copy_values(int worker, std::size_t block, std::span<float> into);
  /// The optimizer's state of a block that is not a table's: by range how many steps it has taken, as uint64, and its
  /// slots one after the other.
  std::size_t state_bytes(std::size_t block) const;
  Bytes state(std::size_t block);
  void set_state(std::size_t block, std::span<const std::byte> state);
  /// Writes the worker's answer over its gradient. For a step in place, once the ledger has given that answer.
  void answer_in_place(int worker, std::size_t block);

  /// How many gradients were applied with which staleness: updates of the block between the worker's last answer and
  /// its gradient. Empty in sync, where it is always 0.
  std::map<std::uint64_t, std::uint64_t> staleness() const;

 private:
  struct Contribution {
    std::span<float> shared;  ///< With the worker.
    std::vector<float> own;   ///< From the first step that is not in place.
    bool in_place = false;    ///< The step that it is in.
    std::uint64_t seen_version = 0;

    std::span<float> gradient() { return in_place ? shared : std::span<float>(own); }
  };
  /// A range's optimizer.
  struct RangeState {
    Range range;
    std::size_t first = 0;  ///< Of its values in the block.
    std::uint64_t steps = 0;
    std::vector<std::vector<float>> slots;
  };
  /// What a worker has said about the step that it is in.
  struct WorkerStep {
    std::shared_ptr<const std::vector<UpdateRule>> rules;  ///< By group.
    std::vector<bool> present;                             ///< As StepNotes'.
  };
  struct BlockState {
    std::size_t number = 0;
    std::size_t first = 0;  ///< Its place among the values of all blocks.
    std::vector<float> values;
    std::vector<Contribution> by_worker;
    Mutex mutex;
    std::vector<RangeState> ranges GYRE_GUARDED_BY(mutex);
    std::uint64_t version GYRE_GUARDED_BY(mutex) = 0;  ///< Updates so far.
    std::map<std::uint64_t, std::uint64_t> staleness GYRE_GUARDED_BY(mutex);
  };

  template <typename Event>
  std::vector<Ledger::Answer> note(Event event);
  std::vector<Ledger::Answer> carry_out(const std::vector<Ledger::Decision>& decisions);
  void average(BlockState& block, std::span<const int> contributors);
  void update(BlockState& block, std::span<const int> contributors);
  void update(std::size_t block, std::span<const int> contributors);
  void step(BlockState& block, std::span<const float> gradient, std::span<const int> contributors)
      GYRE_REQUIRES(block.mutex);
  void check_options(std::span<const int> contributors) const;
  bool is_present(std::size_t tensor, std::span<const int> contributors) const;
  /// Those of a step of these workers.
  const UpdateRule& rule(std::uint32_t group, std::span<const int> contributors) const;

  const TrainingSetup setup_;
  std::vector<WorkerStep> steps_;  // By worker.
  std::vector<std::unique_ptr<BlockState>> blocks_;
  std::vector<std::unique_ptr<TableShard>> tables_;
  std::size_t blocks_of_all_servers_ = 0;
  std::size_t values_of_all_servers_ = 0;
  Mutex mutex_;
  Ledger ledger_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::params::internal
