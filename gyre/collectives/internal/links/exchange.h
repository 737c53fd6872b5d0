#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gyre/collectives/data_type.h"
#include "gyre/group/lane.h"
#include "gyre/net/frame.h"

// How ranges of bytes travel over links: cut into pieces, each a frame with a checksum, and in both directions at
// once. A rank that only sent until it was through would wait for a peer that does the same, with both
// sockets' buffers full; exchange() turns to whatever can go on.

namespace gyre::collectives::internal {

/// Longest piece of a range in one frame.
constexpr std::size_t kPieceBytes = std::size_t{256} * 1024;

/// How a range is cut and what its elements look like in a frame. Equal at both ends.
struct Framing {
  std::size_t piece_bytes = kPieceBytes;  ///< Of the range, before encoding; at most kPieceBytes, a multiple of 64.
  WireFormat wire = WireFormat::kNative;  ///< Another one: the range is of float32.

  bool encoded() const { return wire != WireFormat::kNative; }
  /// What a piece of a range takes up in a frame.
  std::size_t payload_bytes(std::size_t bytes) const { return encoded() ? bytes / 2 : bytes; }
};

/// Whose range it is: the number of the collective in its lane and the step of its schedule. Frames between
/// two ranks are in the order of their steps.
struct FramePlace {
  std::uint64_t collective = 0;
  std::uint32_t step = 0;
};

/// What to do with a piece that has arrived and passed its checksum: its offset in the range, and its payload, which
/// is encoded as the framing says.
using PieceSink = std::function<void(std::size_t offset_bytes, std::span<const std::byte> payload)>;
/// What to do with a piece of a range before it is sent.
using BeforeSending = std::function<void(std::size_t offset_bytes, std::size_t size_bytes)>;

/// A range on its way in. An empty range is one empty frame.
class Incoming {
 public:
  /// Into `range`, in place; `framing` is not encoded. Then to `sink`, where there is one.
  Incoming(group::Lane& lane, int peer, FramePlace place, std::span<std::byte> range, Framing framing = {},
           PieceSink sink = {});
  /// Each payload into `scratch` (large enough for the longest), then to `sink`. Flows of one link may share a scratch.
  Incoming(group::Lane& lane, int peer, FramePlace place, std::size_t size_bytes, std::span<std::byte> scratch,
           PieceSink sink, Framing framing = {});

  bool done() const { return pieces_done_ == pieces_; }
  /// Bytes from the start of the range that have arrived, passed their checksum and been through the sink.
  std::size_t arrived_bytes() const { return arrived_bytes_; }
  /// Takes what is there, one piece at most. True when it got anything.
  bool advance();
  /// Gives up before it is done: nothing can be read from this stream any more.
  void abandon(const Error& cause) { stream_->fail(cause); }
  int fd() const { return stream_->fd(); }
  int peer() const { return peer_; }

 private:
  std::size_t piece_bytes() const;
  std::span<std::byte> payload_space() const;
  std::size_t read_some(std::span<std::byte> into);
  void check_header();
  void finish_piece();

  group::LaneCounters* counters_;
  int peer_;
  net::Stream* stream_;
  std::uint32_t channel_;
  FramePlace place_;
  Framing framing_;
  std::size_t size_bytes_;
  std::span<std::byte> space_;
  bool in_place_;
  PieceSink sink_;
  std::size_t pieces_;
  std::size_t pieces_done_ = 0;
  std::size_t arrived_bytes_ = 0;
  net::EncodedFrameHeader encoded_{};
  net::FrameHeader header_;
  std::size_t frame_bytes_ = 0;  // Of the present frame, header included.
};

/// A range on its way out.
class Outgoing {
 public:
  /// With `source` it forwards what arrives there, piece by piece: the ranges must be the same, and the pieces.
  Outgoing(group::Lane& lane, int peer, FramePlace place, std::span<const std::byte> range,
           const Incoming* source = nullptr, Framing framing = {}, BeforeSending before = {});

  bool done() const { return pieces_done_ == pieces_; }
  /// Whether the next piece may go, which is so unless it has yet to arrive.
  bool ready() const;
  /// Hands over what the stream takes, one piece at most. True when it took anything.
  bool advance();
  /// Gives up before it is done: nothing can be written to this stream any more.
  void abandon(const Error& cause) { stream_->fail(cause); }
  int fd() const { return stream_->fd(); }
  int peer() const { return peer_; }

 private:
  void begin_piece();
  std::size_t write_some(std::span<const std::byte> from);

  group::LaneCounters* counters_;
  int peer_;
  net::Stream* stream_;
  std::uint32_t channel_;
  FramePlace place_;
  Framing framing_;
  std::span<const std::byte> range_;
  const Incoming* source_;
  BeforeSending before_;
  std::size_t pieces_;
  std::size_t pieces_done_ = 0;
  bool begun_ = false;  // The present piece's first buffer is filled.
  // Header, and the payload too where it is encoded or short, so that a small message is one call and one packet.
  std::vector<std::byte> first_;
  std::span<const std::byte> rest_;
  std::size_t frame_bytes_ = 0;
};

/// Moves all ranges to their ends; returns when all are done. Several flows to one peer, or from one, go one after the
/// other, in the order given; the steps of a schedule handed over together so leave no pause between them.
/// Otherwise the links of the ranges that are not done have failed with the same error: what follows on them would be
/// taken for the rest. Throws what the lane's waits throw: Error(kProtocol | kCorruptData | kPeerLost | kPeerLeft)
/// naming the peer, Error(kTimeout) when nothing moved for the lane's timeout, the abort's reason.
void exchange(group::Lane& lane, std::span<Outgoing> outgoing, std::span<Incoming> incoming);

/// Opens the links to `peers`, who open theirs to this rank in the same collective. Opening a link may wait for the
/// other side; all ranks go through their links in one order of pairs, so they never wait in a circle.
void open_links(group::Lane& lane, std::vector<int> peers);

}  // namespace gyre::collectives::internal
