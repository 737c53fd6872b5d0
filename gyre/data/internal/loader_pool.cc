#include "gyre/data/internal/loader_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/thread.h"

namespace gyre::data::internal {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastSlots = 2;
constexpr std::size_t kMostSlots = 1024;
/// Images differ in size more than other samples.
constexpr std::uint64_t kImageReserveBytes = std::uint64_t{16} << 20;
constexpr std::chrono::milliseconds kBetweenMeanwhiles{50};
/// So far ahead readings are announced: so many batches, and so many samples.
constexpr std::uint64_t kAnnouncedBatches = 8;
constexpr std::uint64_t kAnnouncedSamples = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

AlignedMemory allocate(std::size_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, aligned(bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedMemory(memory);
}

std::uint64_t with_a_quarter_more(std::uint64_t bytes) { return bytes + bytes / 4; }

/// What the set says of its blocks, as far as the order needs it.
void add_blocks(SamplerOptions& sampling, const SampleSet& set, std::uint64_t budget_bytes) {
  if (sampling.shuffling == Shuffling::kFull) return;
  const SampleBlocks blocks = set.blocks();
  sampling.block_ends = blocks.ends;
  if (sampling.open_blocks > 0) return;
  sampling.open_blocks = default_open_blocks(blocks.largest_bytes, sampling.streams, budget_bytes);
}

/// Which samples are tried in the place of a damaged one: first those at the distances 1, 3, 7 …, which lead out of a
/// damaged file, then all others in long steps, up to a thousand.
class Replacements {
 public:
  explicit Replacements(std::uint64_t count)
      : count_(count), doublings_(static_cast<std::uint64_t>(std::bit_width(count)) - 1) {
    while (std::gcd(step_, count) != 1) ++step_;
  }

  /// How many are tried at most; some may be tried twice.
  std::uint64_t most() const { return doublings_ + std::min(count_ - 1, kMostSteps); }
  bool are_all_others() const { return count_ - 1 <= kMostSteps; }
  /// `attempt` counts from 1.
  std::uint64_t at(std::uint64_t sample, std::uint64_t attempt) const {
    const std::uint64_t distance =
        attempt <= doublings_ ? (std::uint64_t{1} << attempt) - 1 : (attempt - doublings_) * step_ % count_;
    return (sample + distance) % count_;
  }

 private:
  static constexpr std::uint64_t kMostSteps = 1024;

  std::uint64_t count_;
  std::uint64_t doublings_;                  // With 2^doublings_ - 1 < count_.
  std::uint64_t step_ = count_ / 8 * 5 + 1;  // Has no common divisor with count_, so that it leads to all.
};

void check_rank(int rank, int ranks) {
  if (rank >= 0 && rank < ranks) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no rank {} among {}", rank, ranks));
}

LoaderOptions checked(LoaderOptions options, const SampleSet& set) {
  options.sampling.count = set.count();
  if (options.threads < 1) throw Error(ErrorCode::kInvalidArgument, "a loader needs at least one thread");
  if (options.sampling.batch_per_rank < 1) throw Error(ErrorCode::kInvalidArgument, "a batch has at least one sample");
  check_rank(options.rank, options.sampling.ranks);
  if (options.sampling.streams < 1 || options.sampling.streams > kMostStreams) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} streams; from 1 to {} are possible", options.sampling.streams, kMostStreams));
  }
  if (options.sampling.open_blocks > kMostOpenBlocks) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} open blocks; at most {} are possible", options.sampling.open_blocks, kMostOpenBlocks));
  }
  add_blocks(options.sampling, set, options.memory_budget_bytes);
  return options;
}

std::vector<Field> checked(std::vector<Field> fields) {
  check_fields(fields);
  return fields;
}

}  // namespace

LoaderPool::LoaderPool(std::shared_ptr<const SampleSet> set, std::vector<Field> fields, const LoaderOptions& options)
    : set_(std::move(set)),
      decoder_(checked(std::move(fields))),
      options_(checked(options, *set_)),
      steps_(steps_per_epoch(options_.sampling)),
      budget_(std::make_shared<MemoryBudget>(options.memory_budget_bytes - options.read_ahead_bytes)) {
  plan_memory();
}

LoaderPool::~LoaderPool() { GYRE_CHECK(threads_.empty()); }

void LoaderPool::plan_memory() {
  std::uint64_t slot_bytes = 0;
  for (std::size_t i = 0; i < decoder_.fields().size(); ++i) slot_bytes += aligned(field_bytes(i));
  const std::uint64_t total = budget_->total_bytes();
  if (total < kLeastSlots * slot_bytes) throw budget_too_small(slot_bytes, 0);
  const auto threads = static_cast<std::uint64_t>(options_.threads);
  std::uint64_t scratch_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // Of the budget, kept free of batches where there is enough for that.
  try {
    const std::unique_ptr<BatchSlot> slot = make_slot();
    slot->batch.samples = {EpochOrder(options_.sampling, 0, options_.rank).batch(0, options_.rank).samples.front()};
    Worker worker{set_->make_reader(budget_), FieldScratch(budget_)};
    let_look_ahead(worker);
    static_cast<void>(read_sample(worker, {slot.get(), 0}));
    // Samples differ in size; what is left over is what the largest of them may take more than this one.
    const std::uint64_t shared_bytes = with_a_quarter_more(worker.reader->shared_bytes());
    scratch_bytes = threads * with_a_quarter_more(worker.scratch_bytes()) + shared_bytes;
    if (worker.scratch.bytes() > 0) reserve_bytes = std::min(threads * kImageReserveBytes, total / 8);
    // One file is enough where threads take turns; they need not if there is room for one each.
    reserve_bytes += std::min((threads - 1) * shared_bytes, total / 2);
  } catch (Error& error) {
    if (error.code() == ErrorCode::kResourceExhausted) {
      error.add_context("the first record does not fit into memory together with a batch");
    }
    throw;
  }
  budget_->release(slot_bytes);  // The slot is gone.
  if (total < scratch_bytes + kLeastSlots * slot_bytes) throw budget_too_small(slot_bytes, scratch_bytes);
  const std::uint64_t batch = options_.sampling.batch_per_rank;
  const std::uint64_t busy = 2 + (2 * threads + batch - 1) / batch;
  const std::uint64_t wanted = options_.prefetch_batches > 0 ? options_.prefetch_batches + 1 : busy;
  const MutexLock lock(mutex_);
  most_slots_ = static_cast<std::size_t>(std::clamp<std::uint64_t>(
      std::min(wanted,
               (total - std::min(total, scratch_bytes + reserve_bytes)) / std::max<std::uint64_t>(slot_bytes, 1)),
      kLeastSlots, kMostSlots));
  while (slots_.size() < kLeastSlots) {
    slots_.push_back(make_slot());
    free_.push_back(slots_.back().get());
  }
}

Error LoaderPool::budget_too_small(std::uint64_t slot_bytes, std::uint64_t scratch_bytes) const {
  const std::uint64_t batches = kLeastSlots * slot_bytes;
  const std::string threads = fmt::format("{} thread{}", options_.threads, options_.threads == 1 ? "" : "s");
  const std::string reading =
      scratch_bytes > 0
          ? fmt::format("and {} for what {} read at a time. Give it at least {} bytes", format_bytes(scratch_bytes),
                        threads, batches + scratch_bytes)
          : fmt::format("and room for what {} read at a time. Give it more than {} bytes", threads, batches);
  return {
      ErrorCode::kResourceExhausted,
      fmt::format("the memory budget of {} is too small: the loader needs {} for {} batches of {} {}, or make the "
                  "batches smaller{}",
                  format_bytes(budget_->total_bytes()), format_bytes(batches), kLeastSlots,
                  options_.sampling.batch_per_rank == 1 ? "one sample"
                                                        : fmt::format("{} samples", options_.sampling.batch_per_rank),
                  reading, options_.threads > 1 ? ", or the threads fewer" : "")};
}

std::unique_ptr<BatchSlot> LoaderPool::make_slot() {
  auto slot = std::make_unique<BatchSlot>();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < decoder_.fields().size(); ++i) bytes += aligned(field_bytes(i));
  budget_->reserve(bytes);
  for (std::size_t i = 0; i < decoder_.fields().size(); ++i) slot->fields.push_back(allocate(field_bytes(i)));
  return slot;
}

void LoaderPool::start_threads() {
  try {
    for (int i = 0; i < options_.threads; ++i) threads_.push_back(start_thread("loading data", [this] { work(); }));
  } catch (...) {
    stop();
    throw;
  }
}

void LoaderPool::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void LoaderPool::share_among(int rank, int ranks) {
  check_rank(rank, ranks);
  const MutexLock lock(mutex_);
  end_epoch();
  order_.reset();
  options_.rank = rank;
  options_.sampling.ranks = ranks;
  steps_ = steps_per_epoch(options_.sampling);
}

void LoaderPool::end_epoch() {
  next_step_ = steps_here();
  for (BatchSlot* slot : filling_) slot->begun = slot->batch.samples.size();
  while (working_ > 0) ready_.wait(mutex_);
  free_.insert(free_.end(), filling_.begin(), filling_.end());
  filling_.clear();
}

void LoaderPool::start_epoch(std::uint64_t epoch, std::uint64_t first_step) {
  if (first_step > steps_) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("an epoch of {} steps cannot begin at step {}", steps_, first_step));
  }
  begin(epoch, std::make_shared<const EpochOrder>(options_.sampling, epoch, options_.rank), first_step);
}

std::uint64_t LoaderPool::start_epoch_at(std::uint64_t epoch, std::uint64_t first_position) {
  if (first_position > options_.sampling.count) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("an epoch of {} samples cannot begin behind {} of them",
                                                         options_.sampling.count, first_position));
  }
  auto order = std::make_shared<const EpochOrder>(options_.sampling, epoch, options_.rank, first_position);
  const std::uint64_t steps = order->steps();
  begin(epoch, std::move(order), 0);
  return steps;
}

void LoaderPool::begin(std::uint64_t epoch, std::shared_ptr<const EpochOrder> order, std::uint64_t first_step) {
  {
    const MutexLock lock(mutex_);
    end_epoch();
    order_ = std::move(order);
    epoch_ = epoch;
    next_step_ = first_step;
    announced_steps_ = first_step;
    failed_ = false;
    ledger_ = {};
    epoch_began_ = SteadyClock::now();
  }
  work_.notify_all();
}

void LoaderPool::work() {
  Worker worker{set_->make_reader(budget_), FieldScratch(budget_)};
  let_look_ahead(worker);
  MutexLock lock(mutex_);
  for (;;) {
    const std::optional<Task> task = take_task();
    if (stopping_) return;
    if (!task) {
      worker.reader->let_go();
      work_.wait(mutex_);
      continue;
    }
    ++working_;
    const std::vector<std::uint64_t> soon = not_announced();
    lock.unlock();
    Outcome outcome;
    try {
      announce(soon);
      worker.order = task->slot->order;
      worker.place = worker.order->position_of(task->slot->step, options_.rank, task->position);
      outcome = read_sample(worker, *task);
    } catch (const std::exception& exception) {
      outcome.failure = std::make_exception_ptr(as_error(exception));
    }
    lock.lock();
    --working_;
    finish(*task, outcome);
  }
}

std::optional<LoaderPool::Task> LoaderPool::take_task() {
  if (stopping_) return std::nullopt;
  BatchSlot* slot = filling_.empty() ? nullptr : filling_.back();
  if (slot == nullptr || slot->begun >= slot->batch.samples.size()) slot = begin_batch();
  if (slot == nullptr) return std::nullopt;
  return Task{slot, slot->begun++};
}

std::vector<std::uint64_t> LoaderPool::not_announced() {
  std::vector<std::uint64_t> samples;
  if (options_.read_ahead_bytes == 0) return samples;
  const std::uint64_t batch = options_.sampling.batch_per_rank;
  const std::uint64_t ahead = std::max(kAnnouncedBatches, (kAnnouncedSamples + batch - 1) / batch);
  const std::uint64_t end = std::min(steps_here(), next_step_ + ahead);
  for (; announced_steps_ < end; ++announced_steps_) {
    const RankBatch next = order_->batch(announced_steps_, options_.rank);
    samples.insert(samples.end(), next.samples.begin(), next.samples.end());
  }
  return samples;
}

void LoaderPool::announce(const std::vector<std::uint64_t>& samples) const {
  if (samples.empty()) return;
  try {
    set_->will_read(samples);
  } catch (const Error&) {  // The sample's own reading says what is wrong, in its place of the order.
    return;
  }
}

void LoaderPool::add_slot() {
  try {
    slots_.push_back(make_slot());
    free_.push_back(slots_.back().get());
  } catch (const std::exception&) {
    most_slots_ = slots_.size();  // Records have become larger, and take what this batch would have.
  }
}

BatchSlot* LoaderPool::begin_batch() {
  if (failed_ || next_step_ >= steps_here()) return nullptr;
  if (free_.empty() && slots_.size() < most_slots_) add_slot();
  if (free_.empty()) return nullptr;
  BatchSlot* const slot = free_.back();
  free_.pop_back();
  slot->epoch = epoch_;
  slot->step = next_step_++;
  slot->order = order_;
  slot->batch = order_->batch(slot->step, options_.rank);
  slot->begun = 0;
  slot->finished = 0;
  slot->times = {};
  slot->replaced.clear();
  slot->failed.reset();
  slot->failure = nullptr;
  filling_.push_back(slot);
  return slot;
}

void LoaderPool::let_look_ahead(Worker& worker) const {
  if (options_.sampling.shuffling == Shuffling::kFull) return;
  const bool mixed = options_.sampling.shuffling == Shuffling::kBlocks;
  const auto threads = static_cast<std::size_t>(options_.threads);
  // Of those that are mixed some may not be there yet.
  const auto open = static_cast<std::size_t>(options_.sampling.streams * options_.sampling.open_blocks);
  // Of files afar, also what is on its way while all threads decode.
  const std::size_t most = (mixed ? open + threads : threads - 1) + (options_.read_ahead_bytes > 0 ? 1 : 0);
  worker.reader->expect_neighbours([&worker, most] {
    return worker.order ? worker.order->upcoming_blocks(worker.place, most) : std::vector<std::uint64_t>();
  });
}

LoaderPool::Outcome LoaderPool::read_sample(Worker& worker, const Task& task) const {
  const std::uint64_t wanted = task.slot->batch.samples[task.position];
  const std::uint64_t count = set_->count();
  Outcome outcome;
  std::optional<Error> damage;
  std::optional<Replacements> others;  // Once it is known to be damaged.
  for (std::uint64_t attempt = 0; attempt == 0 || attempt <= others->most(); ++attempt) {
    try {
      read_into_place(worker, task, attempt == 0 ? wanted : others->at(wanted, attempt), outcome.times);
      if (damage) outcome.damage = damage->what();
      return outcome;
    } catch (const Error& error) {
      const bool damaged = error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported;
      if (!options_.replace_damaged || !damaged || count == 1) throw;
      if (damage) continue;
      damage = error;
      others.emplace(count);
    }
  }
  const std::string why = others->are_all_others()
                              ? fmt::format("all {} samples are damaged", count)
                              : fmt::format("the {} others that were tried are damaged too", others->most());
  throw Error(damage->code(), fmt::format("{}; nothing can take its place: {}", damage->what(), why));
}

void LoaderPool::read_into_place(Worker& worker, const Task& task, std::uint64_t sample, StageTimes& times) const {
  const SampleIdentity identity{options_.sampling.seed, task.slot->epoch, sample};
  const Example example = worker.reader->read_sample(sample, times);
  StageClock clock(times);
  std::vector<std::span<std::byte>> into;
  for (std::size_t i = 0; i < decoder_.fields().size(); ++i) {
    const std::size_t bytes = decoder_.sample_bytes(i);
    into.push_back(std::span(task.slot->fields[i].get() + task.position * bytes, bytes));
  }
  try {
    decoder_.decode(example, identity, worker.scratch, clock, into);
  } catch (Error& error) {
    error.add_context(worker.reader->position());
    throw;
  }
}

void LoaderPool::finish(const Task& task, const Outcome& outcome) {
  BatchSlot& slot = *task.slot;
  slot.times += outcome.times;
  ++slot.finished;
  if (!outcome.damage.empty() && task.position < slot.batch.present) {
    const bool first = std::ranges::all_of(slot.replaced, [&](std::size_t other) { return task.position < other; });
    if (first) slot.damage = outcome.damage;
    slot.replaced.push_back(task.position);
  }
  if (outcome.failure && (!slot.failed || task.position < *slot.failed)) {
    slot.failed = task.position;
    slot.failure = outcome.failure;
    failed_ = true;
  }
  if (slot.ready() || working_ == 0) ready_.notify_all();
}

BatchSlot* LoaderPool::next(const std::function<void()>& meanwhile) {
  MutexLock lock(mutex_);
  if (!order_) throw Error(ErrorCode::kInvalidArgument, "no epoch has been started");
  const auto asked = SteadyClock::now();
  while (filling_.empty() ? next_step_ < steps_here() : !filling_.front()->ready()) {
    if (filling_.empty()) make_room();
    ready_.wait_until(mutex_, SteadyClock::now() + kBetweenMeanwhiles);
    if (!meanwhile) continue;
    lock.unlock();
    meanwhile();
    lock.lock();
  }
  if (filling_.empty()) return nullptr;
  BatchSlot* const slot = filling_.front();
  if (slot->failure) std::rethrow_exception(slot->failure);
  account(*slot, asked);
  filling_.pop_front();
  lock.unlock();
  move_replacements_back(*slot);
  return slot;
}

void LoaderPool::move_replacements_back(BatchSlot& slot) const {
  std::ranges::sort(slot.replaced, std::ranges::greater());  // They finished in any order.
  RankBatch& batch = slot.batch;
  for (const std::size_t position : slot.replaced) {
    const auto last = static_cast<std::size_t>(--batch.counted);
    if (options_.sampling.ranks == 1) --batch.counted_globally;
    if (position == last) continue;
    std::swap(batch.samples[position], batch.samples[last]);
    for (std::size_t i = 0; i < slot.fields.size(); ++i) {
      const std::size_t bytes = decoder_.sample_bytes(i);
      std::byte* const values = slot.fields[i].get();
      std::swap_ranges(values + position * bytes, values + (position + 1) * bytes, values + last * bytes);
    }
  }
}

void LoaderPool::make_room() {
  if (!free_.empty() || slots_.size() < most_slots_) return;
  add_slot();
  if (free_.empty()) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the program holds all {} batches that fit into the memory budget of {}, and asks for one "
                            "more; let go of earlier ones, copy what is kept, or give the loader more memory",
                            slots_.size(), format_bytes(budget_->total_bytes())));
  }
  ++most_slots_;
  work_.notify_all();
}

void LoaderPool::account(BatchSlot& slot, SteadyClock::time_point asked) {
  const std::chrono::nanoseconds waited = SteadyClock::now() - asked;
  slot.wait = {
      .epoch = slot.epoch, .step = slot.step, .began = asked, .waited = waited, .waited_for = {}, .worked = slot.times};
  if (ledger_.batches++ == 0) ledger_.first_batch = SteadyClock::now() - epoch_began_;
  ledger_.waited += waited;
  ledger_.worked += slot.times;
  if (!slot.replaced.empty() && ledger_.damaged == 0) ledger_.first_damage = slot.damage;
  ledger_.damaged += slot.replaced.size();
  const auto total = static_cast<double>(std::max<std::int64_t>(slot.times.total().count(), 1));
  for (std::size_t i = 0; i < kStages; ++i) {
    const double share = static_cast<double>(slot.times.spent[i].count()) / total;
    slot.wait.waited_for.spent[i] =
        std::chrono::nanoseconds(static_cast<std::int64_t>(share * static_cast<double>(waited.count())));
  }
  ledger_.waited_for += slot.wait.waited_for;
}

void LoaderPool::give_back(BatchSlot* slot) {
  {
    const MutexLock lock(mutex_);
    free_.push_back(slot);
  }
  work_.notify_all();
}

StallLedger LoaderPool::ledger() const {
  const MutexLock lock(mutex_);
  return ledger_;
}

}  // namespace gyre::data::internal
