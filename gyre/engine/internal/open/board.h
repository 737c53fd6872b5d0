#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/open/executor.h"
#include "gyre/engine/request.h"
#include "gyre/engine/statistics.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/lane.h"
#include "gyre/net/segment.h"

namespace gyre::engine::internal {

/// A board in shared memory at which the ranks of one host run a synchronous call at once, on their own threads and
/// without a message, when all of them make the same call at about the same time.
///
/// A round of the board is open until all ranks have entered it (it is then *held*: the last one to enter compares the
/// n hashes of (name, signature); if they are equal the operation runs, otherwise all turn to the coordinator), or
/// until one of them loses patience and calls it off (then all that had entered turn to the coordinator). The one
/// atomic word `state` = round << 16 | entered decides between the two, so all ranks see the same outcome:
///
///   enter:    (R, e)   -> (R, e+1)               by compare-and-swap; the last one, (R, n), has held the round: it
///                                                writes last_held = R with the outcome and opens the next, (R+1, 0)
///   call off: (R, e<n) -> (R+1, 0)               by compare-and-swap; last_held stays < R
///
/// A rank that turns to the coordinator leaves a note, so that ranks that come to the same call later do not wait for
/// it: the call's hash, and the number of the call since the last round that was held (which tells the uses of one name
/// apart; all ranks take part in every held round). The note is a hint: a rank that misses it waits a little.
///
/// Small payloads are posted together with the hash; each rank takes from them what it needs, so that entering the
/// round is all the ranks do together. Contributions stand in one of two slots in turn, and the slot changes with every
/// round that was held in agreement (not with every round): a rank that posts for the round after next has seen all
/// ranks enter the next one, and so all have read.
///
/// last_held cannot pass R before a rank that entered R has read it, because a later round needs that rank. (The hashes
/// can: a root that is done with a broadcast may post for two later, called-off rounds before a slow rank looks.)
/// Whether a call runs here or through the coordinator depends on timing and affects speed only: the result is the
/// same.
class Board {
 public:
  /// Every rank of a group on one host makes it.
  Board(group::Group& group, const TimelineRows& timeline, const Logger& logger,
        std::chrono::milliseconds collective_timeout);

  /// Whether this kind of operation may run here. The same on all ranks.
  static bool eligible(const Request& request);
  /// Whether an eligible request's sizes are those of all ranks if their hashes are equal: not those of an all-to-all
  /// with uneven splits.
  static bool sizes_are_known(const Request& request);

  /// The result if the operation has run; nothing if the coordinator must order it. Throws what the collective throws.
  /// Thread-safe; one thread at a time uses the board, others are sent to the coordinator.
  std::optional<Result> try_run(const Request& request);

  /// This rank takes an eligible request to the coordinator without having tried. Thread-safe.
  void pass_by(const Request& request);

  /// Of the memory that the ranks share.
  static std::size_t memory_bytes(int size);

  /// Any thread, any time.
  LaneStatistics statistics() const { return {"board", lane_.counters()}; }

 private:
  struct Memory;

  /// What names this call of this rank in the word it may leave; every eligible request takes one.
  std::uint64_t next_call(std::uint64_t hash);
  bool anybody_passed_by(std::uint64_t call) const;
  /// Where a rank's contribution to the round after the last one held in agreement stands.
  std::span<std::byte> contribution_of(int rank) const GYRE_REQUIRES(mutex_);
  void post_contribution(const Request& request) GYRE_REQUIRES(mutex_);
  bool meet_or_fail(const Request& request, std::uint64_t hash, std::uint64_t call) GYRE_REQUIRES(mutex_);
  /// Fails the group with what ended an operation, and throws it.
  [[noreturn]] void fail(const Request& request, const Error& error);
  bool meet(std::uint64_t hash, std::uint64_t call) GYRE_REQUIRES(mutex_);
  /// True when the round was held and all agreed; false when they did not, or it was called off.
  bool await_outcome(std::uint64_t round, std::uint64_t call) GYRE_REQUIRES(mutex_);
  bool all_posted(std::uint64_t round, std::uint64_t hash) const;
  Result run(const Request& request) GYRE_REQUIRES(mutex_);
  Result run_on_board(const Request& request) GYRE_REQUIRES(mutex_);
  Result run_in_lane(const Request& request) GYRE_REQUIRES(mutex_);
  /// Combines the contributions from `begin_bytes` on.
  void combine_contributions(std::span<std::byte> result, std::size_t begin_bytes,
                             const collectives::Reduction& reduction) const GYRE_REQUIRES(mutex_);
  /// Joins what each rank has posted for part `part` of the result, whose parts are equally long.
  void concatenate_contributions(std::span<std::byte> result, int part) const GYRE_REQUIRES(mutex_);

  group::Group& group_;
  const TimelineRows& timeline_;
  group::Lane lane_;
  Executor executor_ GYRE_GUARDED_BY(mutex_);
  std::shared_ptr<net::Segment> segment_;
  Memory* memory_;
  const bool crowded_;  // More ranks than cores: waiting must give the core away at once.
  std::atomic<std::uint64_t> calls_since_held_ = 0;
  Mutex mutex_;
  std::uint64_t held_ GYRE_GUARDED_BY(mutex_) = 0;  // Rounds held in agreement.
};

}  // namespace gyre::engine::internal
