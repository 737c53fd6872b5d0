#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/net/message.h"

namespace gyre::jobs::orders {

// What goes over the connection of a node program so that a node gets the archive of a job's code (ADR 131). The node
// asks for one range after the other and writes what comes into a file, which is all that either side has to remember:
// whoever of the two starts anew, the node asks for what comes next.

/// One range of an archive, which the service answers with one CodePiece or CodeRefusal.
struct CodeRequest {
  std::string attempt;  ///< Of the node that asks, and with that code.
  std::string sha256;   ///< 64 digits.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< At most kMostCodePieceBytes.

  bool operator==(const CodeRequest&) const = default;
};

inline constexpr std::uint64_t kMostCodePieceBytes = std::uint64_t{256} << 10;

/// The range, or as much of it as the archive has.
struct CodePiece {
  std::string sha256;
  std::uint64_t offset = 0;
  std::uint64_t total = 0;           ///< How long the archive is.
  std::span<const std::byte> bytes;  ///< In `message`, where it came in one.
  Bytes message = {};
};

struct CodeRefusal {
  std::string sha256;
  std::string why;  ///< For people.
};

std::string encode(const CodeRequest& request);
std::string encode(const CodeRefusal& refusal);
/// The place as JSON, a line's end, the bytes.
Bytes encode(const CodePiece& piece);
/// All but the bytes.
std::string encode_head(const CodePiece& piece);

/// Error(kCorruptData).
CodeRequest code_request_from(const net::Message& message);
CodePiece code_piece_from(net::Message message);
CodeRefusal code_refusal_from(const net::Message& message);

}  // namespace gyre::jobs::orders
