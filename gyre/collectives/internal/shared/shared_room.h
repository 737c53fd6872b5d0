#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gyre/collectives/internal/shared/shared_layout.h"
#include "gyre/group/lane.h"

namespace gyre::collectives::internal {

/// The ranks of one host, met in a lane's segment for one collective. Made anew for each collective by the thread
/// that owns the lane; all that lasts is in the segment.
///
/// Arrival number a of a rank is its a-th ever, and belongs to slot a mod 3 of its mailbox. The discipline of all
/// executors: the slots of arrival a are filled before that arrival and after wait a-1; others use them
/// after wait a and before arrival a+2. They are filled anew for arrival a+3, that is after wait a+2, when every rank
/// has made arrival a+2 and so has finished with them. Where the others are through before arrival a+1, the same
/// argument shows that two slots would do. Since it speaks of arrivals alone it holds across collectives too.
class SharedRoom {
 public:
  /// Enters the collective `collective` of the lane.
  SharedRoom(group::Lane& lane, std::uint64_t collective);

  int rank() const { return rank_; }
  int size() const { return layout_.local_size(); }
  group::Lane& lane() const { return lane_; }
  group::LaneCounters& counters() const { return lane_.counters(); }
  const SharedLayout& layout() const { return layout_; }

  /// The slots of the arrival this rank makes next (0), of the one it made last (1), of the one before (2).
  std::byte* slot(int local_rank, std::uint64_t arrivals_ago) const {
    return layout_.slot(local_rank, (arrivals_ + 1 - arrivals_ago) % kSlots);
  }

  /// Says that this rank has come so far, without waiting. Every arrival is followed by its wait.
  void arrive();
  /// Returns when all ranks of the host have made the arrival that this rank made last; what they wrote before it
  /// is visible then. Throws what the lane's waits throw; Error(kTimeout) names the ranks that did not come.
  void wait();
  /// Says that this rank, for whom the others may wait, is getting on: their deadlines start anew.
  void note_progress();
  void arrive_and_wait() {
    arrive();
    wait();
  }

 private:
  bool reached() const;
  std::uint64_t progress_of_all() const;
  void wait_giving_way();
  void throw_if_hopeless() const;
  void sleep(std::uint32_t observed) const;
  [[noreturn]] void throw_timeout() const;

  group::Lane& lane_;
  SharedLayout layout_;
  int rank_;
  std::uint64_t collective_;
  std::uint64_t arrivals_;  // This rank's, so far.
  bool spins_;
};

}  // namespace gyre::collectives::internal
