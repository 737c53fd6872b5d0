#include "gyre/engine/internal/open/board.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/clock.h"
#include "gyre/base/cores.h"
#include "gyre/collectives/collectives.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/lane_work.h"
#include "gyre/engine/internal/open/executor.h"

namespace gyre::engine::internal {

namespace {

constexpr std::uint64_t kEnteredMask = 0xFFFF;
constexpr int kRoundShift = 16;
constexpr std::size_t kCacheLineBytes = 64;
constexpr std::chrono::seconds kSetUpTimeout{60};
/// How long a rank waits for the others before it calls a round off: about what the way over the coordinator takes, so
/// that in the worst case it pays twice. (Much less, and ranks that the coordinator's answer reaches one after the
/// other would miss each other in the next call too, and so for ever.)
constexpr std::chrono::microseconds kPatience{400};
/// How much of it is spent spinning, where every rank has a core.
constexpr std::chrono::microseconds kSpinning{100};
constexpr int kSpinsPerClockRead = 64;
/// What is larger goes through the lane's mailboxes.
constexpr std::size_t kContributionBytes = 1024;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint64_t hash_of(const Request& request) {
  const Signature& signature = request.signature;
  const std::uint64_t small =
      static_cast<std::uint64_t>(signature.kind) | static_cast<std::uint64_t>(signature.type) << 8 |
      static_cast<std::uint64_t>(signature.operation) << 16 | static_cast<std::uint64_t>(signature.root) << 32;
  std::uint64_t hash = xxh3_64(as_bytes(request.name), small);
  hash = xxh3_64(std::as_bytes(std::span(signature.shape)), hash);
  const double scales[2] = {signature.prescale, signature.postscale};
  return xxh3_64(bytes_of(scales), hash);
}

/// Names a call in a note. Ranks may disagree about all the rest.
std::uint64_t hash_of_name(const Request& request) {
  return xxh3_64(as_bytes(request.name), static_cast<std::uint64_t>(request.signature.kind));
}

bool fits_on_board(const Request& request) { return request.input.size() <= kContributionBytes; }

bool contributes(const Request& request, int rank) {
  const Signature& signature = request.signature;
  return signature.kind != OperationKind::kBroadcast || rank == signature.root;
}

/// Whether the result may be in memory of its own: see Result.
bool has_own_result(OperationKind kind) {
  return kind == OperationKind::kAllgather || kind == OperationKind::kReduceScatter || kind == OperationKind::kAllToAll;
}

/// Where a rank's share begins in the input of a reduce-scatter, in bytes.
std::size_t begin_of_share(const Signature& signature, int rank, int size) {
  const auto shares = reduce_scatter_rows(signature.shape.at(0), size);
  const std::int64_t before = std::accumulate(shares.begin(), shares.begin() + rank, std::int64_t{0});
  return static_cast<std::size_t>(before) * row_bytes(signature);
}

/// A wait for the rank that holds a round. It is two stores away from the end of it, unless it is stopped or killed
/// between them.
class HolderWait {
 public:
  HolderWait(group::AbortSignal& signal, Deadline deadline) : signal_(signal), deadline_(deadline) {}

  /// Gives the core away. Throws the reason why the group has failed, if it had `failed` before the caller found the
  /// round held, or Error(kTimeout) at the deadline.
  void pause(bool failed) {
    if (failed) signal_.throw_if_triggered();
    if (deadline_.passed()) {
      throw Error(ErrorCode::kTimeout,
                  "waited longer than the limit of a collective for a rank of this host that was settling whether all "
                  "make the same call; is its process stopped?");
    }
    if (yields_ < kMostYields) {
      ++yields_;
      ::sched_yield();
    } else {
      pollfd abort{signal_.fd(), POLLIN, 0};
      ::poll(&abort, 1, kSliceMs);
    }
  }

 private:
  static constexpr int kMostYields = 1000;
  static constexpr int kSliceMs = 10;

  group::AbortSignal& signal_;
  const Deadline deadline_;
  int yields_ = 0;
};

group::LaneOptions board_options(const group::Group& group, std::chrono::milliseconds timeout) {
  return {kBoardChannel, collectives::segment_bytes_for(group.size(), 0), timeout};
}

}  // namespace

struct Board::Memory {
  /// What a rank posts before it enters a round. The round is written last, so that a reader who finds the round it
  /// wants has the hash that belongs to it.
  struct alignas(kCacheLineBytes) Posting {
    std::atomic<std::uint64_t> round[2];  // By parity of the round.
    std::atomic<std::uint64_t> hash[2];
    std::atomic<std::uint64_t> passed_by;  // The last call that this rank took to the coordinator.
    alignas(kCacheLineBytes) std::byte contribution[2][kContributionBytes];
  };

  alignas(kCacheLineBytes) std::atomic<std::uint64_t> state;  // round << 16 | entered; zero-filled memory is round 0.
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> last_held;  // (round + 1) << 1 | agreed; 0 means none.
  Posting postings[1];                                            // One per rank.
};

std::size_t Board::memory_bytes(int size) {
  return sizeof(Memory) + sizeof(Memory::Posting) * static_cast<std::size_t>(size);
}

Board::Board(group::Group& group, const TimelineRows& timeline, const Logger& logger,
             std::chrono::milliseconds collective_timeout)
    : group_(group),
      timeline_(timeline),
      lane_(group, board_options(group, collective_timeout)),
      executor_(lane_, timeline, logger),
      segment_(group.share_segment(kBoardMemoryChannel, memory_bytes(group.size()), Deadline::after(kSetUpTimeout))),
      memory_(reinterpret_cast<Memory*>(segment_->bytes().data())),
      crowded_(usable_cores() < group.size()) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  GYRE_CHECK(static_cast<std::uint64_t>(group.size()) < kEnteredMask);
}

bool Board::eligible(const Request& request) {
  return request.signature.group.empty() && !request.signature.withdrawn() && !request.signature.elsewhere;
}

bool Board::sizes_are_known(const Request& request) {
  const Signature& signature = request.signature;
  if (signature.kind != OperationKind::kAllToAll) return true;
  const auto even = [&](const std::vector<std::int64_t>& splits) {
    const auto differs = [&](std::int64_t split) { return split != splits.front(); };
    return splits.empty() || (std::ranges::none_of(splits, differs) &&
                              splits.front() * static_cast<std::int64_t>(splits.size()) == signature.shape[0]);
  };
  return even(signature.splits) && even(signature.expected_splits);
}

std::uint64_t Board::next_call(std::uint64_t hash) {
  const std::uint64_t count = calls_since_held_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t round = memory_->last_held.load(std::memory_order_acquire);
  return xxh3_64(bytes_of(count), hash ^ round) | 1;  // Zero is nobody's.
}

bool Board::anybody_passed_by(std::uint64_t call) const {
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (memory_->postings[rank].passed_by.load(std::memory_order_relaxed) == call) return true;
  }
  return false;
}

void Board::pass_by(const Request& request) {
  memory_->postings[group_.rank()].passed_by.store(next_call(hash_of_name(request)), std::memory_order_relaxed);
}

std::optional<Result> Board::try_run(const Request& request) {
  const std::uint64_t hash = hash_of(request);
  const std::uint64_t call = next_call(hash_of_name(request));
  std::atomic<std::uint64_t>& passed_by = memory_->postings[group_.rank()].passed_by;
  if (!mutex_.try_lock()) {
    passed_by.store(call, std::memory_order_relaxed);
    return std::nullopt;
  }
  struct GYRE_SCOPED_CAPABILITY Held {  // Takes over what try_lock() gave.
    explicit Held(Mutex& held) GYRE_REQUIRES(held) : mutex(held) {}
    ~Held() GYRE_RELEASE() { mutex.unlock(); }
    Mutex& mutex;
  } held(mutex_);
  post_contribution(request);
  const bool traced = timeline_.enabled();
  if (traced) timeline_.begin(request.name, "NEGOTIATE_" + phase_name(request.signature.kind));
  const bool met = meet_or_fail(request, hash, call);
  if (traced) timeline_.end(request.name);
  if (!met) {
    passed_by.store(call, std::memory_order_relaxed);
    return std::nullopt;
  }
  timeline_.mark_cycle();
  calls_since_held_.store(0, std::memory_order_relaxed);
  Result result = run(request);
  ++held_;
  return result;
}

std::span<std::byte> Board::contribution_of(int rank) const { return memory_->postings[rank].contribution[held_ % 2]; }

void Board::post_contribution(const Request& request) {
  if (!fits_on_board(request) || !contributes(request, group_.rank())) return;
  const std::span<std::byte> own = contribution_of(group_.rank()).first(request.input.size());
  std::copy(request.input.begin(), request.input.end(), own.begin());
}

bool Board::meet_or_fail(const Request& request, std::uint64_t hash, std::uint64_t call) {
  try {
    return meet(hash, call);
  } catch (const Error& error) {
    fail(request, error);
  }
}

void Board::fail(const Request& request, const Error& error) {
  const Error failure = name_collective(error, describe_operation(request), group_);
  group_.abort(failure);
  throw Error(group_.abort_signal().reason().value_or(failure));
}

bool Board::meet(std::uint64_t hash, std::uint64_t call) {
  Memory::Posting& own = memory_->postings[group_.rank()];
  const auto size = static_cast<std::uint64_t>(group_.size());
  std::optional<HolderWait> holder;
  for (;;) {
    if (anybody_passed_by(call)) return false;
    std::uint64_t state = memory_->state.load(std::memory_order_acquire);
    const std::uint64_t round = state >> kRoundShift;
    const std::uint64_t entered = state & kEnteredMask;
    if (entered == size) {  // Held this instant; the next round opens with the holder's next store.
      if (!holder) holder.emplace(group_.abort_signal(), lane_.deadline());
      holder->pause(group_.abort_signal().triggered());
      continue;
    }
    own.round[round % 2].store(0, std::memory_order_relaxed);
    own.hash[round % 2].store(hash, std::memory_order_release);
    own.round[round % 2].store(round + 1, std::memory_order_release);
    if (!memory_->state.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel)) continue;
    if (entered + 1 == size) {
      // All have posted, and nobody posts again before the next round opens.
      const bool agreed = all_posted(round, hash);
      memory_->last_held.store((round + 1) << 1 | static_cast<std::uint64_t>(agreed), std::memory_order_release);
      memory_->state.store((round + 1) << kRoundShift, std::memory_order_release);
      return agreed;
    }
    return await_outcome(round, call);
  }
}

bool Board::await_outcome(std::uint64_t round, std::uint64_t call) {
  const auto begin = SteadyClock::now();
  std::optional<HolderWait> holder;
  for (bool yielding = crowded_;;) {
    for (int spin = 0; spin < (yielding ? 1 : kSpinsPerClockRead); ++spin) {
      if (memory_->state.load(std::memory_order_acquire) >> kRoundShift != round) {
        return memory_->last_held.load(std::memory_order_acquire) == ((round + 1) << 1 | 1);
      }
      pause_briefly();
    }
    if (yielding) ::sched_yield();
    const auto waited = SteadyClock::now() - begin;
    yielding = crowded_ || waited > kSpinning;
    if (waited < kPatience && !anybody_passed_by(call)) continue;
    const bool failed = group_.abort_signal().triggered();
    std::uint64_t state = memory_->state.load(std::memory_order_acquire);
    // Over meanwhile: what was held counts, also when another rank, which has its result already, has failed since.
    if (state >> kRoundShift != round) continue;
    if ((state & kEnteredMask) < static_cast<std::uint64_t>(group_.size())) {
      if (memory_->state.compare_exchange_strong(state, (round + 1) << kRoundShift, std::memory_order_acq_rel)) {
        return false;
      }
      continue;  // Somebody else was faster.
    }
    if (!holder) holder.emplace(group_.abort_signal(), lane_.deadline());
    holder->pause(failed);
  }
}

bool Board::all_posted(std::uint64_t round, std::uint64_t hash) const {
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Memory::Posting& posting = memory_->postings[rank];
    const std::uint64_t posted = posting.hash[round % 2].load(std::memory_order_acquire);
    if (posted != hash || posting.round[round % 2].load(std::memory_order_acquire) != round + 1) return false;
  }
  return true;
}

Result Board::run(const Request& request) {
  const bool traced = timeline_.enabled();
  if (traced) timeline_.begin(request.name, phase_name(request.signature.kind));
  Result result;
  try {
    const LaneWork work(lane_, timeline_, "gyre: synchronous calls");
    result = fits_on_board(request) ? run_on_board(request) : run_in_lane(request);
  } catch (const Error& error) {
    fail(request, error);
  }
  if (traced) timeline_.end(request.name);
  return result;
}

Result Board::run_on_board(const Request& request) {
  lane_.begin_collective();
  const Signature& signature = request.signature;
  Result result;
  std::span<std::byte> output = request.output;
  if (has_own_result(signature.kind)) {
    const RowsOfRank rows = rows_of_rank(signature, {}, group_.rank(), group_.size());
    output = place_result(request, rows, group_.rank(), result);
    if (signature.kind == OperationKind::kAllToAll) result.received_splits = rows.received;
  }
  switch (signature.kind) {
    case OperationKind::kAllreduce: combine_contributions(output, 0, reduction_of(signature)); break;
    case OperationKind::kReduceScatter:
      combine_contributions(output, begin_of_share(signature, group_.rank(), group_.size()), reduction_of(signature));
      break;
    case OperationKind::kBroadcast:
      collectives::copy_bytes(output.data(), contribution_of(signature.root).data(), output.size());
      break;
    case OperationKind::kAllgather: concatenate_contributions(output, 0); break;
    case OperationKind::kAllToAll: concatenate_contributions(output, group_.rank()); break;
    case OperationKind::kBarrier: break;
  }
  return result;
}

void Board::combine_contributions(std::span<std::byte> result, std::size_t begin_bytes,
                                  const collectives::Reduction& reduction) const {
  std::vector<const std::byte*> contributions;
  for (int rank = 0; rank < group_.size(); ++rank) contributions.push_back(contribution_of(rank).data() + begin_bytes);
  collectives::combine_contributions(result, contributions, reduction);
}

void Board::concatenate_contributions(std::span<std::byte> result, int part) const {
  const std::size_t part_bytes = result.size() / static_cast<std::size_t>(group_.size());
  for (int rank = 0; rank < group_.size(); ++rank) {
    collectives::copy_bytes(result.data() + static_cast<std::size_t>(rank) * part_bytes,
                            contribution_of(rank).data() + static_cast<std::size_t>(part) * part_bytes, part_bytes);
  }
}

Result Board::run_in_lane(const Request& request) {
  const Signature& signature = request.signature;
  if (has_own_result(signature.kind)) {
    return executor_.run_one(request, rows_of_rank(signature, {}, group_.rank(), group_.size()));
  }
  if (contributes(request, lane_.rank())) {
    collectives::copy_bytes(request.output.data(), request.input.data(), request.input.size());
  }
  if (signature.kind == OperationKind::kAllreduce) {
    collectives::allreduce(lane_, request.output, reduction_of(request.signature));
  } else {
    collectives::broadcast(lane_, request.output, signature.root);
  }
  return {};
}

}  // namespace gyre::engine::internal
