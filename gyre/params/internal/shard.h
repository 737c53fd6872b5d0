#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/params/ledger.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// The parameters that one server owns, with their optimizer's state and a place for each worker's gradients: memory of
/// the server's own, or where the worker has them (SharedValues). Blocks are numbered within the shard. Thread-safe as
/// said; each worker has one thread here at a time.
class Shard {
 public:
  /// `setup` has been checked.
  Shard(const TrainingSetup& setup, int server, int workers);

  std::size_t blocks() const { return blocks_.size(); }
  std::size_t values_of_all_servers() const { return values_of_all_servers_; }
  /// Its number among all servers' blocks.
  std::size_t number_of(std::size_t block) const { return blocks_.at(block)->number; }

  /// `values`: what this server shares with the worker, for the blocks of all servers. Before the worker's first step.
  void share(int worker, std::span<float> values);
  /// Begins a step of the worker. `in_place`: its gradients lie in the shared values.
  void begin_step(int worker, bool in_place);
  /// Where the worker's gradient of this block lies, or is to be received. Not read before hand_in().
  std::span<float> gradient_place(int worker, std::size_t block);
  /// While no worker is in a step.
  void set(std::size_t block, std::span<const float> values);

  /// The gradient of a step at this rate stands in its place: updates the block if it is time, and says who may have
  /// answers now. Errors of Ledger; kMismatch where workers step at different rates in sync.
  std::vector<Ledger::Answer> hand_in(int worker, std::size_t block, double rate);
  std::vector<Ledger::Answer> leave(int worker);
  std::vector<Ledger::Answer> lose(int worker);
  std::vector<Ledger::Answer> pause(int worker);
  void resume(int worker);

  /// With a quorum, instead of hand_in(): the worker's gradients of all blocks stand in their places, at this rate …
  void note_rate(int worker, double rate);
  /// … and the quorum has decided that these workers' are the step.
  void apply(std::span<const int> contributors);

  /// In sync the values of an answer stay until the worker has handed in its next gradient of that block, which it does
  /// after it has the answer, unless a step can do without it.
  bool values_stay() const {
    return setup_.consistency.kind == Consistency::kSync && !setup_.consistency.needs_quorum();
  }
  /// Whether workers only get the average of their own gradients. If all of their steps are in place, values() does not
  /// hold it.
  bool averages_only() const { return rule_.options().rule == Rule::kAverage && values_stay(); }
  std::span<const float> values(std::size_t block) const { return blocks_.at(block)->values; }
  /// A copy that is of one version, also where others update the block. The worker sees this version from now on.
  void copy_values(int worker, std::size_t block, std::span<float> into);
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
    double rate = 0;
    std::uint64_t seen_version = 0;

    std::span<float> gradient() { return in_place ? shared : std::span<float>(own); }
  };
  struct BlockState {
    std::size_t number = 0;
    std::size_t first = 0;  ///< Its place among the values of all blocks.
    std::vector<float> values;
    std::vector<std::vector<float>> slots;
    std::vector<Contribution> by_worker;
    Mutex mutex;
    std::uint64_t version GYRE_GUARDED_BY(mutex) = 0;  ///< Updates so far.
    std::map<std::uint64_t, std::uint64_t> staleness GYRE_GUARDED_BY(mutex);
  };

  template <typename Event>
  std::vector<Ledger::Answer> note(Event event);
  std::vector<Ledger::Answer> carry_out(const std::vector<Ledger::Decision>& decisions);
  void average(BlockState& block, std::span<const int> contributors);
  void update(BlockState& block, std::span<const int> contributors);
  void check_rates(const BlockState& block, std::span<const int> contributors) const;

  const TrainingSetup setup_;
  const UpdateRule rule_;
  std::vector<std::unique_ptr<BlockState>> blocks_;
  std::size_t values_of_all_servers_ = 0;
  Mutex mutex_;
  Ledger ledger_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::params::internal
