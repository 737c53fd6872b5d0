#include "gyre/collectives/internal/shared/slot_writing.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace gyre::collectives::internal {
namespace {

/// A trial begins with one of so many collectives, and costs less than a hundredth of their time.
constexpr std::uint64_t kTrialEvery = 64;
/// Collectives in a trial, half of them in either way.
constexpr std::uint64_t kTurns = 4;

// Only one thread of one rank uses a trial: atomics because they are in shared memory.
std::uint64_t value_of(const std::atomic<std::uint64_t>& word) { return word.load(std::memory_order_relaxed); }
void set(std::atomic<std::uint64_t>& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }

}  // namespace

SlotWriting::SlotWriting(SharedRoom& room, std::uint64_t kind) : room_(room), through_cache_(hint(room)) {
  if (kind == 0) return;
  Trial& trial = room.layout().line(room.rank()).trial;
  const std::uint64_t number = value_of(trial.moves);
  set(trial.moves, number + 1);
  if (number % kTrialEvery == 0) {
    set(trial.kind, kind);
    set(trial.done, 0);
    for (std::atomic<std::uint64_t>& time : trial.shortest_ns) set(time, std::numeric_limits<std::uint64_t>::max());
  }
  if (value_of(trial.kind) != kind) return;
  trial_ = &trial;
  through_cache_ = value_of(trial.done) % 2 == 1;
}

void SlotWriting::end_of_turn() {
  const auto taken = std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - begin_);
  std::atomic<std::uint64_t>& shortest = trial_->shortest_ns[through_cache_ ? 1 : 0];
  set(shortest, std::min(value_of(shortest), static_cast<std::uint64_t>(taken.count())));
  set(trial_->done, value_of(trial_->done) + 1);
  if (value_of(trial_->done) < kTurns) return;
  set(trial_->kind, 0);
  if (room_.rank() == 0) decide();
}

void SlotWriting::decide() const {
  const std::uint64_t around = value_of(trial_->shortest_ns[0]);
  const std::uint64_t through = value_of(trial_->shortest_ns[1]);
  room_.layout().control().slots_through_cache.store(through < around ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace gyre::collectives::internal
