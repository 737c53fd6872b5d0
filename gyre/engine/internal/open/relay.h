#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/engine/internal/open/aggregator.h"
#include "gyre/engine/internal/open/negotiation_link.h"
#include "gyre/group/group.h"
#include "gyre/net/notifier.h"

namespace gyre::engine::internal {

/// An inner rank's part in the negotiation: merges what the ranks below it announce, its own open lane included, and
/// hands orders on to them. One thread, asleep in poll(2) while nothing is said.
class Relay {
 public:
  /// `children` in any order, this rank's own open lane among them.
  Relay(group::Group& group, int parent_rank, std::unique_ptr<net::Stream> parent,
        std::vector<NegotiationChild> children, std::chrono::milliseconds longest_farewell);
  /// Ends the thread, once all children have closed their links, or after the longest farewell: until then they may
  /// still need what goes through here, although this rank has left.
  ~Relay();

 private:
  void run();
  void serve();
  int poll_timeout_ms() const;
  bool is_done() const;
  void receive_from(NegotiationChild& child);
  void receive_from_parent();
  /// The parent has closed its link. Throws the group's reason unless it has left in good order.
  void note_loss_of_parent();
  /// No order will come any more.
  void end_children(const std::string& reason);
  void announce();

  group::Group& group_;
  const int parent_rank_;
  const std::chrono::milliseconds longest_farewell_;
  net::Notifier stop_;

  // The thread's.
  NegotiationLink parent_;
  std::vector<NegotiationChild> children_;
  Aggregator aggregator_;
  AnnouncementEncoder encoder_;
  OrderDecoder decoder_;
  bool parent_has_left_ = false;
  std::optional<SteadyClock::time_point> farewell_ends_;  // Once this rank has left.

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gyre::engine::internal
