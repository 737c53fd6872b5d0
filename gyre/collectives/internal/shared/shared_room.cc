#include "gyre/collectives/internal/shared/shared_room.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>
#include <utility>

#include "gyre/base/cores.h"
#include "gyre/base/error.h"

namespace gyre::collectives::internal {
namespace {

// A wait has three stages. Spinning answers fastest (0.2 µs) but is right only when every rank has a core; yielding
// lets ranks that share a core take turns; sleeping costs some 50 µs to wake and nothing meanwhile.
constexpr int kMostSpins = 150;  // About 5 µs.
constexpr int kMostYields = 200;
/// Back stop of a sleep: an abort that falls between the last look and the sleep is seen this late.
constexpr long kSleepSliceNs = 40'000'000;
static_assert(std::chrono::nanoseconds(kSleepSliceNs) <= group::AbortSignal::kLongestFutexSleep);

constexpr std::uint32_t kSpin = 1;
constexpr std::uint32_t kNeverSpin = 2;

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Whether this rank may spin: found once per lane, kept in its own line.
bool may_spin(RankLine& line, int local_size) {
  std::uint32_t answer = line.spinning.load(std::memory_order_relaxed);
  if (answer == 0) {
    answer = local_size <= usable_cores() ? kSpin : kNeverSpin;
    line.spinning.store(answer, std::memory_order_relaxed);
  }
  return answer == kSpin;
}

/// The kernel reads the futex as a plain 32-bit word.
std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) { return reinterpret_cast<std::uint32_t*>(&word); }

/// While it lives an abort of this process wakes sleepers on `word`.
class WokenByAbort {
 public:
  WokenByAbort(group::AbortSignal& signal, std::atomic<std::uint32_t>& word) : signal_(signal), word_(word) {
    signal_.add_futex(&word_);
  }
  ~WokenByAbort() { signal_.remove_futex(&word_); }
  WokenByAbort(const WokenByAbort&) = delete;
  WokenByAbort& operator=(const WokenByAbort&) = delete;

 private:
  group::AbortSignal& signal_;
  std::atomic<std::uint32_t>& word_;
};

/// Counts this rank among the sleepers.
class Sleeper {
 public:
  explicit Sleeper(std::atomic<std::uint32_t>& sleepers) : sleepers_(sleepers) { sleepers_.fetch_add(1); }
  ~Sleeper() { sleepers_.fetch_sub(1); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  std::atomic<std::uint32_t>& sleepers_;
};

}  // namespace

SharedRoom::SharedRoom(group::Lane& lane, std::uint64_t collective)
    : lane_(lane),
      layout_(lane.segment(), lane.topology().local_size()),
      rank_(lane.topology().local_rank()),
      collective_(collective) {
  RankLine& line = layout_.line(rank_);
  line.collective.store(collective, std::memory_order_relaxed);
  arrivals_ = line.arrivals.load(std::memory_order_relaxed);
  spins_ = may_spin(line, layout_.local_size());
}

bool SharedRoom::reached() const {
  // Compared as a signed difference, so that the counter may wrap. Acquire pairs with the last arriver's store, which
  // follows its acquire-release increment, which follows those of all others: all their writes are visible.
  const std::uint32_t done = layout_.control().generation.load(std::memory_order_acquire);
  return static_cast<std::int32_t>(done - static_cast<std::uint32_t>(arrivals_)) >= 0;
}

void SharedRoom::arrive() {
  ControlWords& control = layout_.control();
  const std::uint64_t arrival = ++arrivals_;
  layout_.line(rank_).arrivals.store(arrival, std::memory_order_relaxed);
  // Nobody makes arrival a+1 before all made arrival a, so the shared counter tells who is the last of this one.
  const std::uint64_t ticket = control.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (ticket == arrival * static_cast<std::uint64_t>(size())) {
    // No wake-up is lost. Both of us write, then read (all four sequentially consistent): we the generation, then the
    // sleepers; a waiter the sleepers, then the generation. So either we see it counted and wake it, or it sees
    // the new generation and does not sleep. If it is counted but not yet asleep when we wake, the kernel compares the
    // generation with what it had observed, finds them different and lets it return at once.
    control.generation.store(static_cast<std::uint32_t>(arrival), std::memory_order_seq_cst);
    if (control.sleepers.load(std::memory_order_seq_cst) != 0) {
      syscall(SYS_futex, futex_word(control.generation), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }
}

void SharedRoom::wait() {
  if (spins_) {
    for (int i = 0; i < kMostSpins; ++i) {
      if (reached()) return;
      pause_core();
    }
  }
  wait_giving_way();
}

void SharedRoom::wait_giving_way() {
  group::LaneCounters& counters = lane_.counters();
  const CountedTime waiting(counters.waiting_ns);
  for (int i = 0; i < kMostYields; ++i) {
    if (reached()) return;
    throw_if_hopeless();
    sched_yield();
    ++counters.yields;
  }
  ControlWords& control = layout_.control();
  Deadline deadline = lane_.deadline();
  std::uint64_t progress = progress_of_all();
  const WokenByAbort woken_by_abort(lane_.abort_signal(), control.generation);
  const Sleeper sleeper(control.sleepers);
  while (true) {
    const std::uint32_t observed = control.generation.load(std::memory_order_seq_cst);
    if (reached()) return;
    throw_if_hopeless();
    if (deadline.passed()) {
      const std::uint64_t before = std::exchange(progress, progress_of_all());
      if (progress == before) throw_timeout();
      deadline = lane_.deadline();
    }
    ++counters.futex_sleeps;
    sleep(observed);
  }
}

void SharedRoom::note_progress() { layout_.line(rank_).progress.fetch_add(1, std::memory_order_relaxed); }

std::uint64_t SharedRoom::progress_of_all() const {
  std::uint64_t sum = 0;
  for (int i = 0; i < size(); ++i) sum += layout_.line(i).progress.load(std::memory_order_relaxed);
  return sum;
}

void SharedRoom::throw_if_hopeless() const {
  lane_.abort_signal().throw_if_triggered();
  if (lane_.group().exit_count() == 0) return;
  const std::vector<int>& local_ranks = lane_.topology().local_ranks();
  for (int i = 0; i < size(); ++i) {
    const int rank = local_ranks[static_cast<std::size_t>(i)];
    // What a rank did before it left is visible once it has left, so this order of looks is right.
    if (!lane_.group().has_left(rank)) continue;
    if (layout_.line(i).arrivals.load(std::memory_order_relaxed) >= arrivals_) continue;
    throw Error(ErrorCode::kPeerLeft,
                fmt::format("{} left while rank {} waited for it", lane_.topology().describe(rank),
                            lane_.topology().self().rank_in_job.value_or(lane_.rank())));
  }
}

void SharedRoom::sleep(std::uint32_t observed) const {
  // Not the private kind: the sleepers are in several processes. Whatever it returns (woken, changed, interrupted,
  // slice over), the caller looks again.
  const timespec slice{.tv_sec = 0, .tv_nsec = kSleepSliceNs};
  syscall(SYS_futex, futex_word(layout_.control().generation), FUTEX_WAIT, observed, &slice, nullptr, 0);
}

void SharedRoom::throw_timeout() const {
  std::string missing;
  const std::vector<int>& local_ranks = lane_.topology().local_ranks();
  for (int i = 0; i < size(); ++i) {
    const RankLine& line = layout_.line(i);
    if (line.arrivals.load(std::memory_order_relaxed) >= arrivals_) continue;
    const std::uint64_t behind = collective_ - line.collective.load(std::memory_order_relaxed);
    missing += fmt::format("{}{}{}", missing.empty() ? "" : ", ",
                           lane_.topology().describe(local_ranks[static_cast<std::size_t>(i)]),
                           behind == 0 ? "" : fmt::format(" ({} collectives behind)", behind));
  }
  throw Error(
      ErrorCode::kTimeout,
      fmt::format("waited longer than the limit of a collective for {}; is that process stopped, or did it take "
                  "another path?",
                  missing.empty() ? "ranks that have come since" : missing));
}

}  // namespace gyre::collectives::internal
