#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/group/topology.h"

namespace gyre::group {

/// Types of the messages on a membership connection; stable numbers, docs/formats/wire.md describes them.
enum class MessageType : std::uint16_t {
  kJoin = 1,           ///< To rank 0; the first message.
  kMembership = 2,     ///< From rank 0, once all are there: what this rank alone needs to know.
  kRefused = 3,        ///< Failure: this process may not join; the group is not affected.
  kComeBack = 4,       ///< Empty: an earlier group of this job is still being dissolved; connect again.
  kAbort = 5,          ///< Failure: to rank 0, and from it to all.
  kLeave = 6,          ///< Empty, to rank 0.
  kLeft = 7,           ///< From rank 0 to all; a rank that leaves may close its connection when it sees its own exit.
  kLeaveSubgroup = 8,  ///< Left, to rank 0, which informs the others: this rank has left a process set.
  kEnded = 9,          ///< Failure, to rank 0: a rank has ended that has not joined, so the others wait in vain.
  kMembers = 10,       ///< Members: from rank 0, or from the rank that it has named as a source.
  kNoSource = 11,      ///< Empty, to rank 0: the source has not sent the members, so rank 0 has to.
};

/// What the Hello of a connection (gyre/net/handshake.h) says it is for.
enum class Purpose : std::uint32_t {
  kMembership = 1,
  kLink = 2,        ///< Both ranks ask for it; the higher one connects.
  kSegment = 3,     ///< Likewise.
  kDirectLink = 4,  ///< One rank asks for it, whichever; see Group::connect().
  kMembers = 5,     ///< One rank wants the Members message from another, and ends the connection when it has it.
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

/// What differs from rank to rank when all have joined. Its size does not depend on the number of ranks.
struct Membership {
  std::uint64_t epoch = 0;
  Sha256 digest{};                ///< Of the Members message's payload.
  std::string rank_zero_address;  ///< How this rank reaches rank 0's host; empty if they share it.
  std::optional<Member> source;   ///< Has the Members message; none: rank 0 sends it next.
};

/// The members as they see themselves; the same bytes for all ranks.
struct Members {
  std::vector<Member> members;  ///< In the order of their ranks.
  /// Of the same length: the member came to the rendezvous over a loopback or a unix socket.
  std::vector<bool> on_rank_zeros_host;
};

/// A rank that met the rendezvous over the loopback, like rank 0 itself, does not know its address in the network,
/// unless it was given its interfaces. A rank that came over the network does: it is the address at which it reached
/// rank 0's host. Replaces the addresses that lead nowhere else; pure.
Member as_seen_from(const std::string& rank_zero_address, Member member, bool on_rank_zeros_host);
std::vector<Member> as_seen_from(const std::string& rank_zero_address, Members members);

/// A rank has left the group, or only the process set of this number.
struct Exit {
  int rank = 0;
  std::uint64_t process_set = 0;  ///< 0: the group.
  bool lost = false;              ///< It died, which the group tolerates.

  friend bool operator==(const Exit&, const Exit&) = default;
};

Bytes encode_join(const Join& join);
Bytes encode_membership(const Membership& membership);
/// What members have in common, as those of a host do, is written once: about 16 bytes are a rank's own.
Bytes encode_members(const Members& members);
/// Cuts the text at kLongestFailureText.
Bytes encode_failure(const Error& failure);
/// At most kMostExits. Exits of one kind are gathered where the first of them is: 2 bytes each.
Bytes encode_left(std::span<const Exit> exits);

// The bytes come from a peer: Error(kProtocol) says what is wrong with them.
Join decode_join(std::span<const std::byte> bytes);
Membership decode_membership(std::span<const std::byte> bytes);
/// Also checks that there are `size` members.
Members decode_members(std::span<const std::byte> bytes, int size);
Error decode_failure(std::span<const std::byte> bytes);
/// Also checks that there are at most kMostExits, of ranks below `size`, and that none is lost to a process set alone.
std::vector<Exit> decode_left(std::span<const std::byte> bytes, int size);

}  // namespace gyre::group
