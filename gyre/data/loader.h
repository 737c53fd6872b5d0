#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/data/fields.h"
#include "gyre/data/sample_set.h"
#include "gyre/data/sampler.h"
#include "gyre/data/stages.h"

namespace gyre::data {

struct LoaderOptions {
  SamplerOptions sampling;  ///< Its `count` and `block_ends` are the set's.
  int rank = 0;             ///< Of sampling.ranks.
  int threads = 1;          ///< That read, decompress and decode; at least 1.
  /// For batches and for what the threads work with; what is read into it counts, the page cache does not.
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  /// Of the budget, what files that are far away (Folders::are_far()) take for what they fetch ahead; samples are then
  /// announced to them some batches before (SampleSet::will_read()). 0: they are not.
  std::uint64_t read_ahead_bytes = 0;
  std::uint64_t prefetch_batches = 0;  ///< That are read ahead at most; 0: as many as keep all threads busy.
  /// A sample that is damaged is replaced by another one: sample n by n + 1, n + 3, n + 7 …, which leads out of a
  /// damaged file, and then by any other; of sets with more than 1,025 samples about a thousand are tried. Replacements
  /// stand behind the samples that count (RankBatch::counted). Otherwise damage is an error.
  bool replace_damaged = false;
};

/// What the loading of an epoch has cost so far.
struct StallLedger {
  std::uint64_t batches = 0;                ///< That next() has returned.
  std::chrono::nanoseconds waited{0};       ///< In next(), for batches that were not ready.
  StageTimes waited_for;                    ///< `waited`, split as each batch's own work was.
  StageTimes worked;                        ///< All threads together, for the batches returned.
  std::chrono::nanoseconds first_batch{0};  ///< From start_epoch() to the first batch.
  std::uint64_t damaged = 0;                ///< Samples that were replaced (LoaderOptions::replace_damaged) …
  std::string first_damage;                 ///< … and what was wrong with the first one.
};

/// The wait for one batch: its line of the ledger.
struct BatchWait {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  SteadyClock::time_point began;       ///< When next() was called …
  std::chrono::nanoseconds waited{0};  ///< … and how long it took until the batch was ready.
  StageTimes waited_for{};             ///< `waited`, split as the work on the batch was.
  StageTimes worked{};                 ///< All threads together, on this batch.
};

namespace internal {
class LoaderPool;
struct BatchSlot;
}  // namespace internal

/// One batch in memory of the loader, which gets it back when this is destroyed; any thread may do that.
class Batch {
 public:
  Batch(std::shared_ptr<internal::LoaderPool> pool, internal::BatchSlot* slot);
  ~Batch();
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&&) = delete;

  /// Field `index`: batch_per_rank samples, one after the other. At an address that is a multiple of 64.
  std::span<std::byte> field(std::size_t index) const;
  std::uint64_t step() const;
  /// Which samples they are, and how many of them count.
  const RankBatch& samples() const;
  /// What the caller has waited for it.
  const BatchWait& wait() const;

 private:
  std::shared_ptr<internal::LoaderPool> pool_;
  internal::BatchSlot* slot_;
};

/// Reads the batches of an epoch ahead, on threads of its own, in the sampler's order, within a budget of memory. What
/// a batch holds depends on the set, the fields and the sampling alone, never on threads or time. One thread at a time
/// may call it; batches may be given back by any.
class Loader {
 public:
  /// Reads one sample, so that fields that the records do not have are an error here. Error(kInvalidArgument), those of
  /// reading, and kResourceExhausted where the budget does not hold two batches and what the threads need.
  Loader(std::shared_ptr<const SampleSet> set, std::vector<Field> fields, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// From the next epoch that is started this loader is `rank` of `ranks`, such as those that are left of a job's. Ends
  /// the epoch that has been started. Errors are those of the constructor.
  void share_among(int rank, int ranks);

  std::uint64_t steps() const;
  std::span<const Field> fields() const;
  /// What the order of the samples depends on, completed by what the set says.
  const SamplerOptions& sampling() const;

  /// Begins an epoch at `first_step` (0 to steps()), and ends the one before. A sample is known by epoch and step, so
  /// this is also how a run goes on in the middle of an epoch.
  void start_epoch(std::uint64_t epoch, std::uint64_t first_step = 0);

  /// The same at any position of the epoch's order, up to the number of samples: how a run goes on that another number
  /// of ranks or another batch size has brought so far. Batches and their steps count from there; returns how many.
  std::uint64_t start_epoch_at(std::uint64_t epoch, std::uint64_t first_position);

  /// The next batch; nothing at the end of the epoch. Waits until it is ready, and calls `meanwhile` at least ten times
  /// a second, which may throw. An error while it was read is thrown here, in the order of the samples, and again by
  /// every call until the next start_epoch(). Error(kResourceExhausted) where the caller holds all batches that the
  /// budget has room for.
  std::optional<Batch> next(const std::function<void()>& meanwhile = {});

  StallLedger ledger() const;
  /// How much of the budget is in use.
  std::uint64_t memory_bytes() const;

 private:
  std::shared_ptr<internal::LoaderPool> pool_;
};

}  // namespace gyre::data
