#include "gyre/group/messages/point_to_point.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/messages/internal/message_flow.h"
#include "gyre/net/notifier.h"

namespace gyre::group {

namespace {

using internal::FrameKind;

constexpr std::chrono::seconds kLinkTimeout{60};

/// What a sender says about a message before it sends it.
struct Offer {
  std::uint64_t number = 0;  ///< The sender's.
  std::int64_t tag = 0;
  std::uint8_t type = 0;
  std::uint64_t size_bytes = 0;
};

Bytes encode(const Offer& offer) {
  ByteWriter writer;
  writer.u64(static_cast<std::uint64_t>(offer.tag));
  writer.u8(offer.type);
  writer.u64(offer.size_bytes);
  return writer.take();
}

Offer decode_offer(std::uint64_t number, std::span<const std::byte> payload) {
  ByteReader reader(payload, "an offer of a message");
  Offer offer;
  offer.number = number;
  offer.tag = static_cast<std::int64_t>(reader.u64());
  offer.type = reader.u8();
  offer.size_bytes = reader.u64();
  if (reader.remaining() != 0) throw Error(ErrorCode::kProtocol, "an offer of a message is too long");
  return offer;
}

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

/// One other rank.
struct Peer {
  Peer(int peer_rank, std::unique_ptr<net::Stream> link, std::uint32_t channel)
      : rank(peer_rank), stream(std::move(link)), writer(*stream, channel), reader(*stream, channel) {}

  const int rank;
  const std::unique_ptr<net::Stream> stream;
  internal::MessageWriter writer;
  internal::MessageReader reader;
  std::map<std::uint64_t, Send> offered;      ///< Ours, by number, that it has not accepted yet.
  std::uint64_t last_offer = 0;               ///< Its latest number: a sender counts its messages.
  std::deque<Offer> waiting;                  ///< Its, that meet no receive yet; in the order of arrival.
  std::map<std::uint64_t, Receive> arriving;  ///< Its, by number, that we have accepted.
  std::optional<Error> lost;                  ///< Why there is nothing to expect from it any more.
};

}  // namespace

class PointToPoint::Implementation {
 public:
  Implementation(Group& group, std::uint64_t channel, Describe describe);
  ~Implementation() { shutdown(); }

  MessageHandle send(int peer, Send send);
  MessageHandle receive(Receive receive);
  void shutdown();

 private:
  void run();
  void serve();
  void wait_for_events(std::vector<pollfd>& polled);
  void exchange_with(Peer& peer) GYRE_REQUIRES(mutex_);
  void say_last_words() GYRE_REQUIRES(mutex_);
  std::span<std::byte> place_of(Peer& peer, const net::FrameHeader& header) GYRE_REQUIRES(mutex_);
  void arrived(Peer& peer, const net::FrameHeader& header, std::span<const std::byte> payload) GYRE_REQUIRES(mutex_);
  void take_offer(Peer& peer, const Offer& offer) GYRE_REQUIRES(mutex_);
  void accept(Peer& peer, const Offer& offer, Receive receive) GYRE_REQUIRES(mutex_);
  void peer_left(Peer& peer, const Error& reason) GYRE_REQUIRES(mutex_);
  void fail_all(const Error& failure) GYRE_EXCLUDES(mutex_);

  Peer& peer_of(int rank) GYRE_REQUIRES(mutex_) {
    return *peers_[static_cast<std::size_t>(rank < group_.rank() ? rank : rank - 1)];
  }
  void check_peer(int peer, std::string_view what) const;

  Group& group_;
  const Describe describe_;
  net::Notifier wake_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_ GYRE_GUARDED_BY(mutex_);  // By rank, without our own.
  std::deque<Receive> receives_ GYRE_GUARDED_BY(mutex_);  // That meet no offer yet; in the order of posting.
  std::uint64_t sent_ GYRE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  bool stopping_ GYRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

PointToPoint::Implementation::Implementation(Group& group, std::uint64_t channel, Describe describe)
    : group_(group), describe_(std::move(describe)) {
  const Deadline deadline = Deadline::after(kLinkTimeout);
  {
    const MutexLock lock(mutex_);
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      peers_.push_back(
          std::make_unique<Peer>(rank, group_.open_link(rank, channel, deadline), static_cast<std::uint32_t>(channel)));
    }
  }
  if (group_.size() > 1) thread_ = start_thread("point-to-point messages", [this] { run(); });
}

void PointToPoint::Implementation::check_peer(int peer, std::string_view what) const {
  if (peer < 0 || peer >= group_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} rank {}: the ranks of this group are 0 to {}", what, peer, group_.size() - 1));
  }
  if (peer == group_.rank()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} rank {}, which is this rank itself", what, peer));
  }
}

MessageHandle PointToPoint::Implementation::send(int rank, Send send) {
  check_peer(rank, "a send to");
  MessageHandle handle = send.handle;
  const MutexLock lock(mutex_);
  Peer& peer = peer_of(rank);
  if (failure_ || peer.lost) {
    handle.fail(failure_ ? *failure_ : *peer.lost);
    return handle;
  }
  const std::uint64_t number = ++sent_;
  peer.writer.control(FrameKind::kOffer, number, encode({number, send.tag, send.type, send.message.size()}));
  peer.offered.emplace(number, std::move(send));
  wake_.notify();
  return handle;
}

MessageHandle PointToPoint::Implementation::receive(Receive receive) {
  if (receive.peer) check_peer(*receive.peer, "a receive from");
  MessageHandle handle = receive.handle;
  const MutexLock lock(mutex_);
  const bool all_lost = std::ranges::all_of(peers_, [](const auto& peer) { return peer->lost.has_value(); });
  if (failure_) {
    handle.fail(*failure_);
    return handle;
  }
  for (const auto& peer : peers_) {
    if (receive.peer && peer->rank != *receive.peer) continue;
    const auto offer = std::ranges::find(peer->waiting, receive.tag, &Offer::tag);
    if (offer != peer->waiting.end()) {
      const Offer taken = *offer;
      peer->waiting.erase(offer);
      accept(*peer, taken, std::move(receive));
      wake_.notify();
      return handle;
    }
    if (peer->lost && (receive.peer || all_lost)) {
      handle.fail(*peer->lost);
      return handle;
    }
  }
  if (peers_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a receive from any rank, in a group of one rank");
  }
  receives_.push_back(std::move(receive));
  return handle;
}

void PointToPoint::Implementation::accept(Peer& peer, const Offer& offer, Receive receive) {
  if (offer.type != receive.type || offer.size_bytes != receive.into.size()) {
    const Error mismatch(ErrorCode::kMismatch,
                         fmt::format("rank {} sends {} with tag {}, which rank {} receives as {}", peer.rank,
                                     describe_(offer.type, offer.size_bytes), offer.tag, group_.rank(),
                                     describe_(receive.type, receive.into.size())));
    peer.writer.control(FrameKind::kRefuse, offer.number, [&] {
      const auto reason = as_bytes(mismatch.what());
      return Bytes(reason.begin(), reason.end());
    }());
    receive.handle.fail(mismatch);
    return;
  }
  peer.writer.control(FrameKind::kAccept, offer.number);
  if (offer.size_bytes == 0) {
    receive.handle.complete({peer.rank});
    return;
  }
  peer.arriving.emplace(offer.number, std::move(receive));
}

void PointToPoint::Implementation::take_offer(Peer& peer, const Offer& offer) {
  if (offer.number <= peer.last_offer) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("rank {} offered message {} after message {}", peer.rank, offer.number, peer.last_offer));
  }
  peer.last_offer = offer.number;
  const auto meets = [&](const Receive& receive) {
    return receive.tag == offer.tag && (!receive.peer || *receive.peer == peer.rank);
  };
  const auto found = std::ranges::find_if(receives_, meets);
  if (found != receives_.end()) {
    Receive receive = std::move(*found);
    receives_.erase(found);
    accept(peer, offer, std::move(receive));
    return;
  }
  if (peer.waiting.size() >= kMostWaitingMessages) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} messages of rank {} wait on rank {} to be received; no more are accepted",
                            peer.waiting.size(), peer.rank, group_.rank()));
  }
  peer.waiting.push_back(offer);
}

std::span<std::byte> PointToPoint::Implementation::place_of(Peer& peer, const net::FrameHeader& header) {
  const auto found = peer.arriving.find(header.collective);
  if (found == peer.arriving.end() || header.payload_bytes > found->second.into.size() - found->second.arrived_bytes ||
      header.payload_bytes == 0) {
    throw Error(ErrorCode::kProtocol, fmt::format("rank {} sent {} bytes of message {}, which rank {} does not expect",
                                                  peer.rank, header.payload_bytes, header.collective, group_.rank()));
  }
  return found->second.into.subspan(found->second.arrived_bytes, header.payload_bytes);
}

void PointToPoint::Implementation::arrived(Peer& peer, const net::FrameHeader& header,
                                           std::span<const std::byte> payload) {
  const std::uint64_t number = header.collective;
  switch (static_cast<FrameKind>(header.step)) {
    case FrameKind::kOffer: take_offer(peer, decode_offer(number, payload)); return;
    case FrameKind::kPiece: {
      const auto found = peer.arriving.find(number);
      found->second.arrived_bytes += payload.size();
      if (found->second.arrived_bytes < found->second.into.size()) return;
      const MessageHandle handle = found->second.handle;
      peer.arriving.erase(found);
      handle.complete({peer.rank});
      return;
    }
    case FrameKind::kAccept:
    case FrameKind::kRefuse: {
      const auto found = peer.offered.find(number);
      if (found == peer.offered.end()) break;
      const Send send = std::move(found->second);
      peer.offered.erase(found);
      if (static_cast<FrameKind>(header.step) == FrameKind::kAccept) {
        peer.writer.message(number, send.message, send.handle);
      } else {
        send.handle.fail(Error(ErrorCode::kMismatch, std::string(as_text(payload))));
      }
      return;
    }
  }
  throw Error(ErrorCode::kProtocol,
              fmt::format("rank {} sent a frame of kind {} about message {}, which makes no sense", peer.rank,
                          header.step, number));
}

void PointToPoint::Implementation::peer_left(Peer& peer, const Error& reason) {
  peer.lost = reason;
  peer.writer.fail(reason);
  for (const auto& [number, send] : std::exchange(peer.offered, {})) send.handle.fail(reason);
  for (const auto& [number, receive] : std::exchange(peer.arriving, {})) receive.handle.fail(reason);
  peer.waiting.clear();
  const bool all_lost = std::ranges::all_of(peers_, [](const auto& other) { return other->lost.has_value(); });
  std::deque<Receive> kept;
  for (Receive& receive : receives_) {
    if (all_lost || receive.peer == peer.rank) {
      receive.handle.fail(reason);
    } else {
      kept.push_back(std::move(receive));
    }
  }
  receives_ = std::move(kept);
}

void PointToPoint::Implementation::exchange_with(Peer& peer) {
  peer.reader.read([&](const net::FrameHeader& header) GYRE_REQUIRES(mutex_) { return place_of(peer, header); },
                   [&](const net::FrameHeader& header, std::span<const std::byte> payload)
                       GYRE_REQUIRES(mutex_) { arrived(peer, header, payload); });
  peer.writer.write();
}

/// What this rank has decided (a message accepted or refused) must reach the others although it leaves now.
void PointToPoint::Implementation::say_last_words() {
  for (const auto& peer : peers_) {
    if (peer->lost) continue;
    try {
      peer->writer.write();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) throw;  // Who is gone does not need them.
    }
  }
}

void PointToPoint::Implementation::wait_for_events(std::vector<pollfd>& polled) {
  polled.assign({{wake_.fd(), POLLIN, 0}, {group_.abort_signal().fd(), POLLIN, 0}});
  {
    const MutexLock lock(mutex_);
    for (const auto& peer : peers_) {
      if (peer->lost) continue;
      const auto events = static_cast<short>(peer->writer.idle() ? POLLIN : POLLIN | POLLOUT);
      polled.push_back({peer->stream->fd(), events, 0});
    }
  }
  if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) throw system_error("poll", errno);
  wake_.clear();
}

void PointToPoint::Implementation::serve() {
  std::vector<pollfd> polled;
  for (;;) {
    wait_for_events(polled);
    group_.abort_signal().throw_if_triggered();
    MutexLock lock(mutex_);
    if (stopping_) return say_last_words();
    for (const auto& peer : peers_) {
      if (peer->lost) continue;
      try {
        exchange_with(*peer);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPeerLost) throw;
        lock.unlock();  // Finding the cause may take a second.
        const Error cause = group_.cause_of_loss(peer->rank, error);
        lock.lock();
        if (cause.code() != ErrorCode::kPeerLeft) throw Error(cause);
        peer_left(*peer, cause);
      }
    }
  }
}

void PointToPoint::Implementation::run() {
  Error failure(ErrorCode::kShutDown, "the process group was shut down on this rank");
  try {
    serve();
  } catch (const std::exception& error) {
    failure = as_error(error);
    group_.abort(failure);
    failure = group_.abort_signal().reason().value_or(failure);
  }
  fail_all(failure);
}

void PointToPoint::Implementation::fail_all(const Error& failure) {
  const MutexLock lock(mutex_);
  failure_ = failure;
  for (const auto& peer : peers_) {
    if (!peer->lost) peer_left(*peer, failure);
  }
}

void PointToPoint::Implementation::shutdown() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

PointToPoint::PointToPoint(Group& group, std::uint64_t channel, Describe describe)
    : implementation_(std::make_unique<Implementation>(group, channel, std::move(describe))) {}
PointToPoint::~PointToPoint() = default;

MessageHandle PointToPoint::send(int peer, std::int64_t tag, std::uint8_t type, std::span<const std::byte> message) {
  return implementation_->send(peer, {tag, type, message, {}});
}

MessageHandle PointToPoint::receive(std::optional<int> peer, std::int64_t tag, std::uint8_t type,
                                    std::span<std::byte> into) {
  return implementation_->receive({peer, tag, type, into, 0, {}});
}

void PointToPoint::shutdown() { implementation_->shutdown(); }

}  // namespace gyre::group
