#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/base/counter.h"
#include "gyre/group/group.h"

namespace gyre::group {

/// Bytes, waits and work of one lane; read by benches, `gyre explain` and the timeline. Written by the lane's thread,
/// read by any.
struct LaneCounters {
  Counter collectives;
  Counter bytes_sent;  ///< Over links, frame headers included.
  Counter bytes_received;
  Counter bytes_in_place;  ///< Of peer-mapped buffers, which need not be copied.
  Counter futex_sleeps;
  Counter yields;
  // Inside collectives, nanoseconds. Small collectives (a few KB) and waits that end within microseconds are not timed.
  Counter waiting_ns;   ///< For other ranks: yielding, asleep, in poll.
  Counter copying_ns;   ///< Between memory of this rank and the places where others read.
  Counter reducing_ns;  ///< Arithmetic.
  Counter sending_ns;   ///< Handing bytes to links and taking them from there.
};

struct LaneOptions {
  std::uint64_t channel = 0;  ///< Names the lane; equal on all ranks; used once per group.
  /// Shared memory per host; 0 for none, on all hosts or on none. May differ between hosts, not within one.
  std::size_t segment_bytes = 0;
  /// Longest wait for a peer inside a collective; 0: no limit.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
};

/// One total order of collectives that all ranks of a group share: its own links and its own piece of shared
/// memory. Every collective of a lane runs on one thread per rank at a time, in the same order everywhere; that
/// is what makes deadlock impossible. Not thread-safe: one thread at a time owns it.
class Lane {
 public:
  /// Every rank makes it with the same channel; maps the host's segment. Links are made when first needed.
  Lane(Group& group, const LaneOptions& options);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  const Topology& topology() const { return group_.topology(); }
  Group& group() { return group_; }
  AbortSignal& abort_signal() { return group_.abort_signal(); }
  std::uint64_t channel() const { return options_.channel; }

  /// The stream to a peer; opened by the first use on both sides.
  net::Stream& link(int peer);

  /// Memory shared by the ranks of this host; empty span when segment_bytes was 0.
  std::span<std::byte> segment() const;

  /// The number of the collective that starts now: 1, 2, …; equal on all ranks by construction.
  std::uint64_t begin_collective() { return ++counters_.collectives; }
  LaneCounters& counters() { return counters_; }
  const LaneCounters& counters() const { return counters_; }

  /// When a wait inside a collective must end.
  Deadline deadline() const;

 private:
  Group& group_;
  LaneOptions options_;
  std::shared_ptr<net::Segment> segment_;
  std::vector<std::unique_ptr<net::Stream>> links_;  // By peer; null until first needed.
  LaneCounters counters_;
};

}  // namespace gyre::group
