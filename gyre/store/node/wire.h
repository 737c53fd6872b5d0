#pragma once

#include <cstdint>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/net/handshake.h"

namespace gyre::store::node {

// What nodes say to each other over TLS, and clients to the daemon of their node over a Unix socket: net::Messages, and
// a chunk's bytes without a frame around them behind the message that announces them. docs/formats/store.md.

/// Hello::purpose. Far from the numbers of ranks and of the job service.
constexpr std::uint32_t kPurpose = 0x5301;

/// A connection's memory at both ends, and so the credit that a reader gives with each request.
constexpr std::uint32_t kMostReadBytes = 4U << 20;

namespace message_type {
// Requests.
constexpr std::uint16_t kRead = 0x5301;
constexpr std::uint16_t kGetMembers = 0x5302;
constexpr std::uint16_t kSetMembers = 0x5303;
constexpr std::uint16_t kGetCatalog = 0x5304;  ///< Of clients of this node alone.
constexpr std::uint16_t kGetStatus = 0x5305;   ///< Likewise.
constexpr std::uint16_t kGetSecret = 0x5306;   ///< Likewise.
// Replies.
constexpr std::uint16_t kData = 0x5311;
constexpr std::uint16_t kAbsent = 0x5312;
constexpr std::uint16_t kPatience = 0x5313;  ///< Once a second, while the bytes are being fetched: this node lives.
constexpr std::uint16_t kFailure = 0x5314;
constexpr std::uint16_t kMembers = 0x5315;
constexpr std::uint16_t kCatalogPart = 0x5316;
constexpr std::uint16_t kStatus = 0x5317;
constexpr std::uint16_t kSecret = 0x5318;  ///< ChunkSecret's 32 bytes; empty where chunks are not encrypted.
constexpr std::uint16_t kBusy = 0x5319;    ///< Too many connections (u32): ask again later. The connection ends.
}  // namespace message_type

/// A range of a chunk, within kMostReadBytes.
struct ReadRequest {
  std::uint64_t fingerprint = 0;  ///< Of the catalog whose entry is meant: a daemon may have been started anew.
  std::uint64_t entry = 0;
  std::uint32_t chunk = 0;
  std::uint32_t offset_bytes = 0;
  std::uint32_t size_bytes = 0;
  bool only_if_present = false;  ///< Else the asked node fetches what it does not have.

  Bytes encode() const;
  static ReadRequest decode(std::span<const std::byte> bytes);
};

/// Announces the bytes.
struct DataReply {
  std::uint64_t members = 0;  ///< Members::stamp() of those that the sender knows.
  std::uint32_t size_bytes = 0;

  Bytes encode() const;
  static DataReply decode(std::span<const std::byte> bytes);
};

Bytes encode_failure(const Error& error);
Error decode_failure(std::span<const std::byte> bytes);

}  // namespace gyre::store::node
