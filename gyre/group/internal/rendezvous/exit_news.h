#pragma once

#include <chrono>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"

namespace gyre::group {

/// When rank 0 informs the members of exits. The first one goes out at once; those that follow closely wait for each
/// other, longer and longer, so that n ranks that leave together cost each of the others a few messages and not n.
/// Pure: the caller brings the time and sends. Not thread-safe.
class ExitNews {
 public:
  /// Pauses between batches: doubled from the first to the longest as long as ranks keep leaving. Well below
  /// Group::kLongestCauseWait, the time for which a rank waits to learn why a peer is gone.
  static constexpr std::chrono::milliseconds kFirstPause{10};
  static constexpr std::chrono::milliseconds kLongestPause{160};

  /// True when due() is new: nothing was waiting.
  bool add(const Exit& exit, SteadyClock::time_point now);
  /// When to take() what waits.
  SteadyClock::time_point due() const { return due_; }
  /// Empties it.
  std::vector<Exit> take(SteadyClock::time_point now);

 private:
  std::vector<Exit> waiting_;
  SteadyClock::time_point due_;
  SteadyClock::time_point not_before_;  // The next batch.
  std::chrono::milliseconds pause_{0};
};

}  // namespace gyre::group
