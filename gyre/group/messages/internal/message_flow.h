#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/group/messages/message_handle.h"
#include "gyre/net/frame.h"
#include "gyre/net/stream.h"

namespace gyre::group::internal {

/// What a frame between two ranks says; it stands in the header's `step`. `collective` is the sender's number of the
/// message, `piece` the piece's place in it. The numbers travel on the wire.
enum class FrameKind : std::uint32_t {
  kOffer = 1,   ///< Sender: a message waits. Payload: see Offer.
  kAccept = 2,  ///< Receiver: send it now.
  kRefuse = 3,  ///< Receiver: it does not fit. Payload: the reason, for people.
  kPiece = 4,   ///< Sender: the next kPieceBytes of it.
  kKnock = 16,  ///< Between ranks of one host: look into the shared memory.
};

/// Long messages travel in pieces, so that a word about another message need not wait for the end of one.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10;
/// Payloads of all kinds but kPiece.
constexpr std::size_t kMostControlBytes = 4096;

/// Writes frames to one peer without ever blocking: control frames first, then the messages in their order. Not
/// thread-safe.
class MessageWriter {
 public:
  MessageWriter(net::Stream& stream, std::uint32_t channel) : stream_(stream), channel_(channel) {}

  void control(FrameKind kind, std::uint64_t message, Bytes payload = {});
  /// `handle` is completed when the last byte has been handed to the system.
  void message(std::uint64_t number, std::span<const std::byte> bytes, const MessageHandle& handle);

  bool idle() const { return frame_left_.empty() && payload_left_.empty() && controls_.empty() && messages_.empty(); }
  /// Writes what can be written now. Error(kPeerLost).
  void write();
  /// Fails what has not been written.
  void fail(const Error& failure);

 private:
  struct Control {
    net::FrameHeader header;
    Bytes payload;
  };
  struct Message {
    std::uint64_t number = 0;
    std::span<const std::byte> left;
    std::uint32_t pieces = 0;  ///< Begun so far.
    MessageHandle handle;
  };

  bool begin_frame();
  void end_frame();
  void start(const net::FrameHeader& header, std::span<const std::byte> payload);

  net::Stream& stream_;
  std::uint32_t channel_;
  std::deque<Control> controls_;
  std::deque<Message> messages_;
  bool in_control_ = false;  ///< The frame under way is the first control's, not the first message's.
  net::EncodedFrameHeader encoded_{};
  std::span<const std::byte> frame_left_;
  std::span<const std::byte> payload_left_;
};

/// Reads frames from one peer, each payload straight into the memory that it is for. Not thread-safe.
class MessageReader {
 public:
  MessageReader(net::Stream& stream, std::uint32_t channel) : stream_(stream), channel_(channel) {}

  /// Where a piece of `header.payload_bytes` bytes goes; must throw for one that nobody waits for.
  using Place = std::function<std::span<std::byte>(const net::FrameHeader& header)>;
  /// A whole frame with a good checksum; the payload of a piece is where Place wanted it.
  using Arrived = std::function<void(const net::FrameHeader& header, std::span<const std::byte> payload)>;
  /// Reads what is there now. Error(kPeerLost, kProtocol, kCorruptData), and what the functions throw.
  void read(const Place& place, const Arrived& arrived);

 private:
  void begin_payload(const Place& place);

  net::Stream& stream_;
  std::uint32_t channel_;
  net::EncodedFrameHeader encoded_{};
  std::size_t header_bytes_ = 0;
  net::FrameHeader header_;
  Bytes control_;
  std::span<std::byte> payload_;
  std::size_t payload_bytes_ = 0;
};

}  // namespace gyre::group::internal
