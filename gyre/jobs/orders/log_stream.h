#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/net/message.h"

namespace gyre::jobs::orders {

// What goes over the connection of a node program so that an attempt's logs reach the service while they are written
// (ADR 127). The node's file is the sender's memory, and the service's file is the receiver's: whoever of the two
// starts anew, the receiver says how much of each file it has, and the sender goes on there.

/// A place in a file of an attempt's log folder on one node.
struct LogPlace {
  std::string attempt;
  std::string file;
  std::uint64_t offset = 0;

  bool operator==(const LogPlace&) const = default;
};

/// Offset of a file that the service does not want, or not any more.
inline constexpr std::uint64_t kNothingWanted = std::uint64_t{1} << 62;

/// Of one message.
inline constexpr std::size_t kMostLogPieceBytes = std::size_t{64} << 10;

struct LogPiece {
  LogPlace place;
  std::span<const std::byte> bytes;  ///< Of the message that it came in.
};

/// What can be the name of such a file: UTF-8 without control characters and '/', at most kLongestLogName bytes, and
/// none that begins with a dot.
bool is_log_name(std::string_view name);
inline constexpr std::size_t kLongestLogName = 128;

std::string encode(const LogPlace& place);
/// The place as JSON, a line's end, the bytes. At most kMostLogPieceBytes.
Bytes encode_log_piece(const LogPlace& place, std::span<const std::byte> bytes);

/// Error(kCorruptData).
LogPlace log_place_from(const net::Message& message);
LogPiece log_piece_from(const net::Message& message);

}  // namespace gyre::jobs::orders
