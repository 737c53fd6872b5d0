#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gyre/group/lane.h"
#include "gyre/net/frame.h"

// How ranges of bytes travel over links: cut into segments, each a frame with a checksum, and in both directions at
// once. A rank that only sent until it was through would wait for a peer that does the same, with both
// sockets' buffers full; exchange() turns to whatever can go on.

namespace gyre::collectives::internal {

/// Longest payload of a frame. Both ends cut a range the same way, so only the range's size must be agreed.
constexpr std::size_t kSegmentBytes = std::size_t{256} * 1024;

/// Whose range it is: the number of the collective in its lane and the step of its schedule. Frames between
/// two ranks are in the order of their steps.
struct FramePlace {
  std::uint64_t collective = 0;
  std::uint32_t step = 0;
};

/// What to do with a segment that has arrived and passed its checksum: its offset in the range, its bytes.
using SegmentSink = std::function<void(std::size_t offset_bytes, std::span<const std::byte> segment)>;

/// A range on its way in. An empty range is one empty frame.
class Incoming {
 public:
  /// Into `range`, in place.
  Incoming(group::Lane& lane, int peer, FramePlace place, std::span<std::byte> range);
  /// Each segment into `scratch` (kSegmentBytes, or the whole range if that is shorter), then to `sink`.
  Incoming(group::Lane& lane, int peer, FramePlace place, std::size_t size_bytes, std::span<std::byte> scratch,
           SegmentSink sink);

  bool done() const { return segments_done_ == segments_; }
  /// Bytes from the start of the range that have arrived and passed their checksum.
  std::size_t arrived_bytes() const { return arrived_bytes_; }
  /// Takes what is there, one segment at most. True when it got anything.
  bool advance();
  int fd() const { return stream_->fd(); }
  int peer() const { return peer_; }

 private:
  std::span<std::byte> segment_space() const;
  void check_header();
  void finish_segment();

  group::LaneCounters* counters_;
  int peer_;
  net::Stream* stream_;
  std::uint32_t channel_;
  FramePlace place_;
  std::size_t size_bytes_;
  std::span<std::byte> space_;
  SegmentSink sink_;
  std::size_t segments_;
  std::size_t segments_done_ = 0;
  std::size_t arrived_bytes_ = 0;
  net::EncodedFrameHeader encoded_{};
  net::FrameHeader header_;
  std::size_t frame_bytes_ = 0;  // Of the present frame, header included.
};

/// A range on its way out.
class Outgoing {
 public:
  /// With `source` it forwards what arrives there, segment by segment: the ranges must be the same.
  Outgoing(group::Lane& lane, int peer, FramePlace place, std::span<const std::byte> range,
           const Incoming* source = nullptr);

  bool done() const { return segments_done_ == segments_; }
  /// Whether the next segment may go, which is so unless it has yet to arrive.
  bool ready() const;
  /// Hands over what the stream takes, one segment at most. True when it took anything.
  bool advance();
  int fd() const { return stream_->fd(); }
  int peer() const { return peer_; }

 private:
  void begin_segment();

  group::LaneCounters* counters_;
  int peer_;
  net::Stream* stream_;
  std::uint32_t channel_;
  FramePlace place_;
  std::span<const std::byte> range_;
  const Incoming* source_;
  std::size_t segments_;
  std::size_t segments_done_ = 0;
  bool begun_ = false;  // The present segment's first buffer is filled.
  // Header, and the payload too where it is short, so that a small message is one call and one packet.
  std::vector<std::byte> first_;
  std::span<const std::byte> rest_;
  std::size_t frame_bytes_ = 0;
};

/// Moves all ranges to their ends; returns when all are done. At most one Outgoing and one Incoming per peer.
/// Throws what the lane's waits throw: Error(kProtocol | kCorruptData | kPeerLost | kPeerLeft) naming the peer,
/// Error(kTimeout) when nothing moved for the lane's timeout, the abort's reason.
void exchange(group::Lane& lane, std::span<Outgoing> outgoing, std::span<Incoming> incoming);

/// Opens the links to `peers`, who open theirs to this rank in the same collective. Opening a link may wait for the
/// other side; all ranks go through their links in one order of pairs, so they never wait in a circle.
void open_links(group::Lane& lane, std::vector<int> peers);

}  // namespace gyre::collectives::internal
