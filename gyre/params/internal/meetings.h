#pragma once

#include <span>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/group/group.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/internal/board.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// A worker's side of the Board. All calls are collective among the workers. Not thread-safe.
class Meetings {
 public:
  /// Both must outlive it.
  Meetings(group::Group& group, group::PointToPoint& messages, const Layout& layout)
      : group_(group), messages_(messages), layout_(layout) {}

  /// Waits for all workers, and adds up what they give, in place.
  void meet(Meeting meeting, std::span<double> values) const;
  /// The workers that were there, ascending; not empty.
  std::vector<int> who_is_here(Meeting meeting) const;
  bool all_agree(Meeting meeting, bool agrees) const;

  /// The bytes of the first worker become everybody's; of the next one, if that dies before all have them.
  void broadcast(std::span<std::byte> bytes) const;

 private:
  int worker() const { return layout_.worker_of(group_.rank()); }
  bool was_lost(int worker) const { return group_.was_lost(layout_.rank_of_worker(worker)); }
  void send_to(const std::vector<int>& workers, std::span<const std::byte> bytes) const;
  bool receive_from(int source, std::span<std::byte> bytes) const;

  group::Group& group_;
  group::PointToPoint& messages_;
  const Layout layout_;
};

}  // namespace gyre::params::internal
