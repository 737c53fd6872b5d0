#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/request.h"
#include "gyre/engine/statistics.h"
#include "gyre/engine/timeline.h"
#include "gyre/group/lane.h"
#include "gyre/net/segment.h"

namespace gyre::engine::internal {

/// Lets ranks of one host that make the same synchronous call at about the same time run it at once, on their own
/// threads, without a message: they meet at a board in shared memory.
///
/// A round of the board is open until all ranks have entered it (it is then *held*: the last one to enter compares the
/// n hashes of (name, signature); if they are equal the operation runs, otherwise all turn to the coordinator), or
/// until one of them loses patience and calls it off (then all that had entered turn to the coordinator). The one
/// atomic word `state` = round << 16 | entered decides between the two, so all ranks see the same outcome:
///
///   enter:    (R, e)   -> (R, e+1)               by compare-and-swap; the last one, (R, n), has held the round: it
///                                                writes last_held = R with its verdict and opens the next, (R+1, 0)
///   call off: (R, e<n) -> (R+1, 0)               by compare-and-swap; last_held stays < R
///
/// A rank that turns to the coordinator leaves word of it, so that those who come to the same call later do not wait
/// for it in vain: the call's hash, and which call since the last round that was held it is (which tells the uses of
/// one name apart; all ranks take part in every held round). The word is a hint: when it is missed a rank waits a
/// little.
///
/// What is small travels on the board itself: a rank posts its contribution with the hash, so that meeting is all the
/// ranks do together, and each combines what was posted by itself. Contributions stand in one of two places in turn,
/// which changes with every round that was held in agreement (not with every round): who posts for the next but one of
/// these has met all ranks in the next, and so all have read.
///
/// last_held cannot pass R before a rank that entered R has read it, because a later round needs that rank. (The hashes
/// can: a root that is done with a broadcast may post for two later, called-off rounds before a slow rank looks.) Which
/// calls meet is a matter of luck and speed only: the result is the same either way.
class Meeting {
 public:
  /// Every rank of a group on one host makes it.
  Meeting(group::Group& group, const TimelineRows& timeline, std::chrono::milliseconds collective_timeout);

  /// Whether this kind of operation may run here.
  static bool eligible(const Request& request);

  /// True when the operation has run; false when the coordinator must order it. Throws what the collective throws.
  /// Thread-safe; one thread at a time meets, others are sent to the coordinator.
  bool try_run(const Request& request);

  /// This rank takes an eligible request to the coordinator without having tried. Thread-safe.
  void pass_by(const Request& request);

  /// Any thread, any time.
  LaneStatistics statistics() const { return {"meeting", lane_.counters()}; }

 private:
  struct Board;

  /// What names this call of this rank in the word it may leave; every eligible request takes one.
  std::uint64_t next_call(std::uint64_t hash);
  bool anybody_passed_by(std::uint64_t call) const;
  /// Where a rank's contribution to the round after the last one held in agreement stands.
  std::span<std::byte> contribution_of(int rank) const GYRE_REQUIRES(mutex_);
  void post_contribution(const Request& request) GYRE_REQUIRES(mutex_);
  bool meet(std::uint64_t hash, std::uint64_t call) GYRE_REQUIRES(mutex_);
  /// True when the round was held and all agreed; false when they did not, or it was called off.
  bool await_outcome(std::uint64_t round, std::uint64_t call) GYRE_REQUIRES(mutex_);
  bool all_posted(std::uint64_t round, std::uint64_t hash) const;
  void run(const Request& request) GYRE_REQUIRES(mutex_);
  void run_on_board(const Request& request) GYRE_REQUIRES(mutex_);
  void run_in_lane(const Request& request) GYRE_REQUIRES(mutex_);

  group::Group& group_;
  const TimelineRows& timeline_;
  group::Lane lane_;
  std::shared_ptr<net::Segment> memory_;
  Board* board_;
  const bool crowded_;  // More ranks than cores: waiting must give the core away at once.
  std::atomic<std::uint64_t> calls_since_held_ = 0;
  Mutex mutex_;
  std::uint64_t held_ GYRE_GUARDED_BY(mutex_) = 0;  // Rounds held in agreement.
};

}  // namespace gyre::engine::internal
