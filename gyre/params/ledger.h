#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::params {

/// How far workers may drift apart.
enum class Consistency : std::uint8_t {
  kSync,     ///< Every step uses the gradients of all workers, averaged, and all workers get its result.
  kAsync,    ///< Each gradient is applied as soon as it arrives, and its worker goes on.
  kBounded,  ///< The same, but no worker is more than `staleness` steps ahead of the slowest.
};

struct ConsistencyOptions {
  Consistency kind = Consistency::kSync;
  std::uint64_t staleness = 0;  ///< Of kBounded, in steps.
  /// Of kSync: how many workers a step does not wait for. A worker that comes too late is told; its gradient is
  /// dropped.
  int backup_workers = 0;
  /// The others go on when a worker dies; otherwise that ends the job.
  bool survives_losses = false;
  /// … but not when worker 0 dies, because it alone does something that the job is for, such as saving checkpoints.
  bool needs_first_worker = false;

  /// Steps do not wait for all workers, or these may die in the middle of one: all servers follow one Quorum.
  bool needs_quorum() const { return kind == Consistency::kSync && (backup_workers > 0 || survives_losses); }

  bool operator==(const ConsistencyOptions&) const = default;
};

/// What a server does about its blocks and when, without the numbers: which gradients are summed into which step, and
/// who may have which answer. A worker goes through its steps one after the other; within one it hands in every block
/// once, in any order, and goes on when it has the answers for all of them. Not thread-safe; pure: what it decides
/// depends on the calls alone.
///
/// kSync: a block's step is decided when every worker that has not left has handed it in. As a worker leaves only
/// between its steps, all servers decide on the same workers for the same step.
/// kBounded (Ho et al., NIPS 2013): clock c of a worker counts its steps. The answer to its step c - 1 is given when
/// all workers that have not left have clock c - s at least, so c_max - c_min <= s holds among those at work, and the
/// answer holds every update with a timestamp of at most c - s - 1. A worker that pauses is not at work. When it goes
/// on, it has as many steps as the slowest one at work at least, or where nobody is at work, as the one that has most.
class Ledger {
 public:
  struct Answer {
    int worker = 0;
    std::uint32_t block = 0;

    bool operator==(const Answer&) const = default;
  };
  struct Decision {
    /// kSync: whose gradients of the block are averaged now, ascending; empty: not yet. Otherwise always empty, as the
    /// caller has applied the gradient before.
    std::vector<int> contributors;
    std::uint32_t block = 0;
    /// Given after that.
    std::vector<Answer> answers;
  };

  Ledger(int workers, std::uint32_t blocks, const ConsistencyOptions& options);

  /// kSync: the worker's gradient of this block has arrived. Otherwise: it has been applied. Error(kProtocol) for a
  /// worker that has left, a block out of range, or one that the worker has handed in already in this step.
  Decision hand_in(int worker, std::uint32_t block);

  /// The worker has run out of data; nobody waits for it any more. Error(kProtocol) in the middle of a step.
  std::vector<Decision> leave(int worker);
  /// The worker has died: as if it had left, at any point. In kSync what it has handed in and is not decided is
  /// dropped.
  std::vector<Decision> lose(int worker);

  /// Between two of its steps the worker waits for others: in kBounded nobody waits for it until it resumes.
  /// Error(kProtocol) in the middle of a step, or after it has left.
  std::vector<Decision> pause(int worker);
  void resume(int worker);

  int active_workers() const;
  /// Steps that the worker has handed in completely.
  std::uint64_t clock(int worker) const { return workers_.at(static_cast<std::size_t>(worker)).clock; }

 private:
  struct Worker {
    bool active = true;
    std::uint64_t clock = 0;
    std::uint32_t handed_in = 0;  ///< Blocks of the step it is in.
    std::vector<bool> has_block;  ///< Which.
    bool waits = false;           ///< kBounded: for slower workers, with all its answers.
    bool pauses = false;
  };

  std::vector<Decision> decide_without(Worker& worker);
  Decision decide(std::uint32_t block);
  std::vector<Answer> release();
  std::vector<Decision> released();
  void check_between_steps(int number, std::string_view what) const;
  bool step_begun(const Worker& worker) const { return worker.handed_in > 0; }

  ConsistencyOptions options_;
  std::uint32_t blocks_;
  std::vector<Worker> workers_;
  std::vector<std::vector<bool>> arrived_;  // kSync: by block and worker.
};

}  // namespace gyre::params
