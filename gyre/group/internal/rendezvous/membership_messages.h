#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/group/topology.h"

namespace gyre::group {

/// Types of the messages on a membership connection; stable numbers, docs/formats/wire.md describes them.
enum class MessageType : std::uint16_t {
  kJoin = 1,           ///< To rank 0; the first message.
  kMembership = 2,     ///< From rank 0, once all are there.
  kRefused = 3,        ///< Failure: this process may not join; the group is not affected.
  kComeBack = 4,       ///< Empty: an earlier group of this job is still being dissolved; connect again.
  kAbort = 5,          ///< Failure: to rank 0, and from it to all.
  kLeave = 6,          ///< Empty, to rank 0.
  kLeft = 7,           ///< From rank 0 to all; a rank that leaves may close its connection when it sees its own exit.
  kLeaveSubgroup = 8,  ///< Left, to rank 0, which informs the others: this rank has left a process set.
  kEnded = 9,          ///< Failure, to rank 0: a rank has ended that has not joined, so the others wait in vain.
};

/// What the Hello of a connection (gyre/net/handshake.h) says it is for.
enum class Purpose : std::uint32_t {
  kMembership = 1,
  kLink = 2,        ///< Both ranks ask for it; the higher one connects.
  kSegment = 3,     ///< Likewise.
  kDirectLink = 4,  ///< One rank asks for it, whichever; see Group::connect().
};

/// Limits on what peers send. Nothing of ours comes near them.
constexpr int kMostRanks = 1 << 16;
constexpr std::size_t kMostEndpoints = 8;
constexpr std::size_t kMostExits = 4096;
constexpr std::size_t kLongestName = 512;
constexpr std::size_t kLongestFailureText = std::size_t{16} << 10;

struct Join {
  int size = 0;
  Member member;
};

struct Membership {
  std::uint64_t epoch = 0;
  std::vector<Member> members;  ///< In the order of their ranks.
};

/// A rank has left the group, or only the process set of this number.
struct Exit {
  int rank = 0;
  std::uint64_t process_set = 0;  ///< 0: the group.
  bool lost = false;              ///< It died, which the group tolerates.

  friend bool operator==(const Exit&, const Exit&) = default;
};

Bytes encode_join(const Join& join);
Bytes encode_membership(const Membership& membership);
/// Cuts the text at kLongestFailureText.
Bytes encode_failure(const Error& failure);
/// At most kMostExits.
Bytes encode_left(std::span<const Exit> exits);

// The bytes come from a peer: Error(kProtocol) says what is wrong with them.
Join decode_join(std::span<const std::byte> bytes);
/// Also checks that there are `size` members, in the order of their ranks.
Membership decode_membership(std::span<const std::byte> bytes, int size);
Error decode_failure(std::span<const std::byte> bytes);
/// Also checks that there are at most kMostExits, of ranks below `size`, and that none is lost to a process set alone.
std::vector<Exit> decode_left(std::span<const std::byte> bytes, int size);

}  // namespace gyre::group
