#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/group/messages/internal/mail_segment.h"
#include "gyre/group/messages/internal/message_flow.h"
#include "gyre/group/messages/internal/peer_memory.h"
#include "gyre/group/messages/message_handle.h"
#include "gyre/net/stream.h"

namespace gyre::group::internal {

/// What a sender says about a message before it sends it.
struct Offer {
  std::uint64_t number = 0;  ///< The sender's.
  std::int64_t tag = 0;
  std::uint8_t type = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t address = 0;       ///< In the sender's process; of a rank of this host.
  std::optional<Bytes> content{};  ///< All of it, where it came with the offer and was kept.
};

struct Receive {
  std::optional<int> peer;
  std::int64_t tag = 0;
  std::uint8_t type = 0;
  std::span<std::byte> into;
  std::size_t arrived_bytes = 0;
  MessageHandle handle;
};

struct Send {
  std::int64_t tag = 0;
  std::uint8_t type = 0;
  std::span<const std::byte> message;
  MessageHandle handle;
};

/// A record that waits for room. Of an offer's payload `whole` says whether there is one; it lies in the sender's
/// memory.
struct WaitingRecord {
  MailHead head;
  bool whole = false;
  std::string text{};
};

/// A message that goes in pieces.
struct Sending {
  std::uint64_t number = 0;
  std::span<const std::byte> left;
  MessageHandle handle;
};

/// What one rank of this host has to do with another one.
struct Mail {
  Mail(const MailSegment& segment, int own, int other, const Member& self, const Member& peer, const std::string& name)
      : desk(segment.desk(other)),
        out(segment.control(own, other), segment.ring(own, other), name),
        in(segment.control(other, own), segment.ring(other, own), name),
        memory(self, peer) {}

  Desk& desk;  ///< The peer's.
  MailWriter out;
  MailReader in;
  PeerMemory memory;
  std::deque<WaitingRecord> waiting{};
  std::deque<Sending> sending{};
  std::atomic<bool> wants_room{false};  ///< One of the two above is not empty.
  bool to_alert = false;                ///< Something was written since it was last alerted.
};

/// A link to another rank.
struct Line {
  Line(std::unique_ptr<net::Stream> link, std::uint32_t channel) : stream(std::move(link)), reader(*stream, channel) {}

  const std::unique_ptr<net::Stream> stream;
  MessageReader reader;
};

/// One other rank with which messages are exchanged.
struct Peer {
  Peer(int peer_rank, std::unique_ptr<Line> line, std::uint32_t channel)
      : rank(peer_rank), writer(*line->stream, channel) {
    lines.push_back(std::move(line));
  }

  /// Two when both ranks have connected at the same time. All that a rank writes goes over its first one, so it arrives
  /// in its order; both read from both.
  static constexpr std::size_t kMostLines = 2;

  const int rank;
  std::vector<std::unique_ptr<Line>> lines;  ///< To a rank of this host only for knocks, and to see its end.
  MessageWriter writer;
  std::unique_ptr<Mail> mail{};                 ///< Of a rank of this host.
  std::map<std::uint64_t, Send> offered{};      ///< Ours, by number, that it has not taken or accepted yet.
  std::uint64_t last_offer = 0;                 ///< Its latest number: a sender counts its messages.
  std::deque<Offer> waiting{};                  ///< Its, that meet no receive yet; in the order of arrival.
  std::map<std::uint64_t, Receive> arriving{};  ///< Its, by number, that we have accepted.
  std::optional<Error> lost{};                  ///< Why there is nothing to expect from it any more.
};

/// A message that lies in another process of this host and is to be copied from there.
struct Copy {
  Peer* peer = nullptr;
  Offer offer;
  Receive receive;
};

}  // namespace gyre::group::internal
