#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/loader.h"

namespace gyre::data::internal {

struct FreeAligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeAligned>;

/// A batch's memory, and what is known of the batch that is in it.
struct BatchSlot {
  std::vector<AlignedMemory> fields;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::shared_ptr<const EpochOrder> order;  ///< In which the batch stands.
  RankBatch batch;
  std::size_t begun = 0;     ///< Samples that a thread has taken.
  std::size_t finished = 0;  ///< Samples that are done, or have failed.
  StageTimes times;
  BatchWait wait;                     ///< Known when it goes to the caller.
  std::vector<std::size_t> replaced;  ///< Positions of damaged samples, and what was wrong with the first of them.
  std::string damage;
  std::optional<std::size_t> failed;  ///< The first sample that could not be read …
  std::exception_ptr failure;         ///< … and why.

  bool ready() const { return finished == batch.samples.size(); }
};

/// The threads of a loader and the memory between them and its caller. Lives as long as the loader or one of its
/// batches.
class LoaderPool {
 public:
  LoaderPool(std::shared_ptr<const SampleSet> set, std::vector<Field> fields, const LoaderOptions& options);
  ~LoaderPool();

  std::uint64_t steps() const { return steps_; }
  const FieldDecoder& decoder() const { return decoder_; }
  const SamplerOptions& sampling() const { return options_.sampling; }
  std::size_t field_bytes(std::size_t index) const {
    return decoder_.sample_bytes(index) * static_cast<std::size_t>(options_.sampling.batch_per_rank);
  }

  void start_threads();
  /// Ends the threads and waits for them.
  void stop() GYRE_EXCLUDES(mutex_);
  void share_among(int rank, int ranks) GYRE_EXCLUDES(mutex_);
  void start_epoch(std::uint64_t epoch, std::uint64_t first_step) GYRE_EXCLUDES(mutex_);
  std::uint64_t start_epoch_at(std::uint64_t epoch, std::uint64_t first_position) GYRE_EXCLUDES(mutex_);
  BatchSlot* next(const std::function<void()>& meanwhile) GYRE_EXCLUDES(mutex_);
  void give_back(BatchSlot* slot) GYRE_EXCLUDES(mutex_);
  StallLedger ledger() const GYRE_EXCLUDES(mutex_);
  std::uint64_t memory_bytes() const { return budget_->used_bytes(); }

 private:
  struct Task {
    BatchSlot* slot;
    std::size_t position;
  };

  /// Ends the epoch before and begins `epoch` at a step of `order`.
  void begin(std::uint64_t epoch, std::shared_ptr<const EpochOrder> order, std::uint64_t first_step)
      GYRE_EXCLUDES(mutex_);
  /// Nothing more of the epoch that is read; what has begun is waited for, because it writes to the slots.
  void end_epoch() GYRE_REQUIRES(mutex_);
  /// Steps of the order that is read.
  std::uint64_t steps_here() const GYRE_REQUIRES(mutex_) { return order_ ? order_->steps() : 0; }
  /// Reads the first sample and plans how many batches the budget holds.
  void plan_memory() GYRE_EXCLUDES(mutex_);
  /// What is needed of the budget; without `scratch_bytes` as far as that is known before anything was read.
  Error budget_too_small(std::uint64_t slot_bytes, std::uint64_t scratch_bytes) const;
  std::unique_ptr<BatchSlot> make_slot();
  void work() GYRE_EXCLUDES(mutex_);
  std::optional<Task> take_task() GYRE_REQUIRES(mutex_);
  /// The samples of the batches that come next, as far as they were not announced yet; none where none are to be.
  std::vector<std::uint64_t> not_announced() GYRE_REQUIRES(mutex_);
  void announce(const std::vector<std::uint64_t>& samples) const;
  /// A slot for the next batch, if there is one to read and memory for it.
  BatchSlot* begin_batch() GYRE_REQUIRES(mutex_);
  /// One more slot in free_, where the budget still holds one.
  void add_slot() GYRE_REQUIRES(mutex_);
  /// For a caller that holds all batches: one more, or an Error.
  void make_room() GYRE_REQUIRES(mutex_);
  /// What one thread keeps from sample to sample.
  struct Worker {
    std::unique_ptr<SampleReader> reader;
    FieldScratch scratch;
    std::shared_ptr<const EpochOrder> order{};  ///< Of the sample that it reads …
    std::uint64_t place = 0;                    ///< … and its place there.

    std::uint64_t scratch_bytes() const { return reader->scratch_bytes() + scratch.bytes(); }
  };
  /// What became of a sample.
  struct Outcome {
    StageTimes times;
    std::exception_ptr failure;
    std::string damage;  ///< Of the sample whose place another one has taken.
  };
  /// Tells the reader that it can ask what comes next, where neighbours are read together.
  void let_look_ahead(Worker& worker) const;
  /// The task's sample, or the one that takes its place.
  Outcome read_sample(Worker& worker, const Task& task) const;
  void read_into_place(Worker& worker, const Task& task, std::uint64_t sample, StageTimes& times) const;
  void finish(const Task& task, const Outcome& outcome) GYRE_REQUIRES(mutex_);
  /// Moves the replacements of damaged samples behind those that count.
  void move_replacements_back(BatchSlot& slot) const;
  /// Writes down what the caller, which asked at that moment, has waited for the batch.
  void account(BatchSlot& slot, SteadyClock::time_point asked) GYRE_REQUIRES(mutex_);

  const std::shared_ptr<const SampleSet> set_;
  const FieldDecoder decoder_;
  LoaderOptions options_;  // Its rank and sampling.ranks change only while no thread reads samples.
  std::uint64_t steps_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::vector<std::thread> threads_;

  mutable Mutex mutex_;
  ConditionVariable work_;   // For the threads: there is something to read, or it is over.
  ConditionVariable ready_;  // For the caller: a batch is ready, or no thread works on the last epoch any more.
  std::vector<std::unique_ptr<BatchSlot>> slots_ GYRE_GUARDED_BY(mutex_);
  std::size_t most_slots_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<BatchSlot*> free_ GYRE_GUARDED_BY(mutex_);
  std::deque<BatchSlot*> filling_ GYRE_GUARDED_BY(mutex_);  // In the order of their steps.
  std::shared_ptr<const EpochOrder> order_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t epoch_ GYRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_step_ GYRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t announced_steps_ GYRE_GUARDED_BY(mutex_) = 0;  // Up to this step.
  std::size_t working_ GYRE_GUARDED_BY(mutex_) = 0;            // Threads that read a sample.
  bool stopping_ GYRE_GUARDED_BY(mutex_) = false;
  bool failed_ GYRE_GUARDED_BY(mutex_) = false;
  StallLedger ledger_ GYRE_GUARDED_BY(mutex_);
  SteadyClock::time_point epoch_began_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::data::internal
