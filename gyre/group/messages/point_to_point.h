#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gyre/group/group.h"
#include "gyre/group/messages/message_handle.h"

namespace gyre::group {

namespace internal {
class Messenger;
}

/// How messages between ranks of one host go. All ranks of a host choose the same.
enum class LocalPath : std::uint8_t {
  kSharedMemory,  ///< Small ones through shared memory; others are copied once, out of the sender's memory, where the
                  ///< system permits that.
  kPieces,        ///< As where it does not: in pieces through shared memory.
  kLinks,         ///< As between hosts.
};

/// Messages from one rank to another, apart from the collectives' order. A send meets the receive of the same tag; of
/// several, the first sent meets the first posted. A message moves once both are there, straight from the sender's
/// memory into the receiver's: a send is done only when a receive has taken it, whatever its length, and two ranks that
/// both wait for their send before they receive wait without end. Nothing here has a time limit: callers wait as long
/// as they like (MessageHandle::wait_for). A waiting caller moves the messages; if nobody waits, a thread of this
/// object does.
///
/// Lengths and types (a number that means something to both sides) are compared before a byte moves: a difference fails
/// both sides with Error(kMismatch). When a peer leaves in good order, what waits for it fails with kPeerLeft; when one
/// dies, the group fails. All methods are thread-safe. Idle it sleeps.
class PointToPoint {
 public:
  /// How many sends of one peer may be waiting for their receives here; more are Error(kResourceExhausted) there.
  static constexpr std::size_t kMostWaitingMessages = 1 << 16;

  /// What a message of a type and a size holds, for people: "3 float32 elements". Any type may have arrived.
  using Describe = std::function<std::string(std::uint8_t type, std::size_t size_bytes)>;

  /// Collective, once per group and channel: shares memory with the ranks of this host (at most 4 MB in all, but for
  /// very many ranks). Links are opened, and threads started, by the first message from or to a rank. The group must
  /// outlive it.
  PointToPoint(Group& group, std::uint64_t channel, Describe describe, LocalPath local = LocalPath::kSharedMemory);
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  /// The memory must stay until the handle is done. The first send to a peer opens the link, within a minute; what
  /// prevents that comes through the handle. Error(kInvalidArgument) unless the peer is another rank.
  MessageHandle send(int peer, std::int64_t tag, std::uint8_t type, std::span<const std::byte> message);

  /// `peer` empty: from the rank that sends first, which is the result's `source`.
  MessageHandle receive(std::optional<int> peer, std::int64_t tag, std::uint8_t type, std::span<std::byte> into);

  /// From now on a message's Arrival says when it was done: a send when the other side had taken it.
  void note_times();

  /// Messages in flight fail with kShutDown. Idempotent; the destructor calls it.
  void shutdown();

 private:
  const std::shared_ptr<internal::Messenger> messenger_;  // Handles have it as well.
};

}  // namespace gyre::group
