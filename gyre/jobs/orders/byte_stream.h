#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/net/message.h"

namespace gyre::jobs::orders {

// A flow of bytes both ways between a client of the service and a node on which a job runs (ADR 134). It goes over the
// connection that the node program has opened, and over one that the client has opened to the service, which passes on
// what comes and keeps nothing but what the other side has room for. Its messages are the same on both ways: the number
// of the stream, which to the client is 0, and what each needs.

/// What may be on its way, or be waiting, in each direction of one stream. Whoever gets bytes gives credit for as many
/// once they have gone where they belong.
inline constexpr std::uint64_t kStreamWindow = std::uint64_t{64} << 10;
inline constexpr std::size_t kMostStreamPieceBytes = std::size_t{16} << 10;
/// That one node carries at once. All of their windows are what a renewal of its lease may have to wait behind.
inline constexpr std::size_t kMostStreams = 32;

/// Types of messages; the other ones are in messages.h. In both directions, but for the first.
namespace stream_message {
constexpr std::uint16_t kOpen = 51;    ///< StreamRequest; to the node.
constexpr std::uint16_t kBytes = 52;   ///< 1 to kMostStreamPieceBytes.
constexpr std::uint16_t kCredit = 53;  ///< u32: so many more bytes may come.
constexpr std::uint16_t kEnd = 54;     ///< No more bytes from here; the other direction goes on.
constexpr std::uint16_t kClosed = 55;  ///< Text: why it ended early, for people; empty: it has ended as it should.
}  // namespace stream_message

bool is_about_streams(std::uint16_t type);

/// Where a stream leads on a node.
struct StreamRequest {
  std::string attempt;     ///< That runs there.
  std::uint16_t port = 0;  ///< Of the node's loopback address.

  bool operator==(const StreamRequest&) const = default;
};

/// One message, whose `bytes` are those of what it was read from.
struct StreamMessage {
  std::uint16_t type = 0;
  std::uint32_t stream = 0;
  std::span<const std::byte> bytes{};
};

/// The payload of a message: the stream's number, then the bytes.
Bytes encode_stream(std::uint32_t stream, std::span<const std::byte> bytes = {});
Bytes encode_credit(std::uint32_t stream, std::uint32_t bytes);
std::string encode(const StreamRequest& request);

// Error(kCorruptData | kProtocol).
StreamMessage stream_message_from(const net::Message& message);
std::uint32_t credit_from(const StreamMessage& message);
StreamRequest stream_request_from(const StreamMessage& message);

}  // namespace gyre::jobs::orders
