#include "gyre/group/messages/internal/messenger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gyre/base/random.h"
#include "gyre/base/thread.h"

namespace gyre::group::internal {

namespace {

constexpr std::chrono::seconds kLinkTimeout{60};
/// Of messages that came with their offers before their receives were posted; what would be more is fetched when it is
/// received.
constexpr std::size_t kMostKeptBytes = std::size_t{4} << 20;
/// From here on two copies, into the ring and out of it, take longer than one that the system makes.
constexpr std::size_t kMostBytesWithOffer = 4096;

Bytes encode(const Offer& offer) {
  ByteWriter writer;
  writer.u64(static_cast<std::uint64_t>(offer.tag));
  writer.u8(offer.type);
  writer.u64(offer.size_bytes);
  return writer.take();
}

std::uint64_t secret_number() {
  std::uint64_t number = 0;
  fill_with_secure_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace

Messenger::Messenger(Group& group, std::uint64_t channel, PointToPoint::Describe describe, LocalPath local)
    : group_(group), describe_(std::move(describe)), local_(local), probe_(secret_number()) {
  const Deadline deadline = Deadline::after(kLinkTimeout);
  const MutexLock lock(mutex_);
  if (local_ != LocalPath::kLinks && group_.topology().local_size() > 1) open_mail(channel, deadline);
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank != group_.rank()) make_peer(rank, channel, deadline);
  }
}

void Messenger::start() {
  if (group_.size() > 1) thread_ = start_thread("point-to-point messages", [this] { run(); });
}

void Messenger::make_peer(int rank, std::uint64_t channel, Deadline deadline) {
  auto peer =
      std::make_unique<Peer>(rank, group_.open_link(rank, channel, deadline), static_cast<std::uint32_t>(channel));
  const Topology& topology = group_.topology();
  const auto place = std::ranges::find(topology.local_ranks(), rank);
  if (segment_ && place != topology.local_ranks().end()) {
    const int local_rank = static_cast<int>(place - topology.local_ranks().begin());
    peer->mail = std::make_unique<Mail>(*segment_, topology.local_rank(), local_rank, topology.self(),
                                        topology.member(rank), topology.describe(rank));
    mails_.push_back(peer->mail.get());
  }
  peers_.push_back(std::move(peer));
}

void Messenger::check_peer(int peer, std::string_view what) const {
  if (peer < 0 || peer >= group_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} rank {}: the ranks of this group are 0 to {}", what, peer, group_.size() - 1));
  }
  if (peer == group_.rank()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} rank {}, which is this rank itself", what, peer));
  }
}

MessageHandle Messenger::send(int rank, Send send) {
  check_peer(rank, "a send to");
  MessageHandle handle(shared_from_this(), note_times_);
  send.handle = handle;
  const MutexLock lock(mutex_);
  Peer& peer = peer_of(rank);
  if (failure_ || peer.lost) {
    handle.fail(failure_ ? *failure_ : *peer.lost);
    return handle;
  }
  const std::uint64_t number = ++sent_;
  const auto message = send.message;
  const MailHead head{.number = number,
                      .tag = send.tag,
                      .size_bytes = message.size(),
                      .address = reinterpret_cast<std::uint64_t>(message.data()),
                      .kind = MailKind::kOffer,
                      .type = send.type};
  peer.offered.emplace(number, std::move(send));
  if (!peer.mail) {
    peer.writer.control(FrameKind::kOffer, number,
                        encode({.tag = head.tag, .type = head.type, .size_bytes = head.size_bytes}));
    wake_.notify();
    return handle;
  }
  const bool whole = message.size() <= std::min(kMostBytesWithOffer, peer.mail->out.longest_payload());
  post(peer, head, whole ? message : std::span<const std::byte>{}, whole);
  alert_peers();
  return handle;
}

bool Messenger::meet_waiting(Peer& peer, Receive& receive) {
  if (receive.peer && peer.rank != *receive.peer) return false;
  const auto found = std::ranges::find(peer.waiting, receive.tag, &Offer::tag);
  if (found != peer.waiting.end()) {
    Offer offer = std::move(*found);
    peer.waiting.erase(found);
    const std::optional<Bytes> content = std::move(offer.content);
    if (content) kept_bytes_ -= content->size();
    accept(peer, std::move(offer), content ? std::span<const std::byte>(*content) : std::span<const std::byte>{},
           std::move(receive));
    return true;
  }
  if (!peer.lost) return false;
  const bool all_lost = std::ranges::all_of(peers_, [](const auto& other) { return other->lost.has_value(); });
  if (receive.peer || all_lost) receive.handle.fail(*peer.lost);
  return receive.peer || all_lost;
}

MessageHandle Messenger::receive(Receive receive) {
  if (receive.peer) check_peer(*receive.peer, "a receive from");
  MessageHandle handle(shared_from_this(), note_times_);
  receive.handle = handle;
  const MutexLock lock(mutex_);
  if (failure_) {
    handle.fail(*failure_);
    return handle;
  }
  if (peers_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a receive from any rank, in a group of one rank");
  }
  for (const auto& peer : peers_) {
    if (!meet_waiting(*peer, receive)) continue;
    if (!peer->mail) wake_.notify();
    begin_copy();
    alert_peers();
    return handle;
  }
  receives_.push_back(std::move(receive));
  return handle;
}

void Messenger::accept(Peer& peer, Offer offer, std::span<const std::byte> content, Receive receive) {
  if (offer.type != receive.type || offer.size_bytes != receive.into.size()) {
    const Error mismatch(ErrorCode::kMismatch,
                         fmt::format("rank {} sends {} with tag {}, which rank {} receives as {}", peer.rank,
                                     describe_(offer.type, offer.size_bytes), offer.tag, group_.rank(),
                                     describe_(receive.type, receive.into.size())));
    const auto reason = as_bytes(mismatch.what());
    if (peer.mail) {
      post(peer, {.number = offer.number, .kind = MailKind::kRefuse},
           reason.first(std::min(reason.size(), peer.mail->out.longest_payload())));
    } else {
      peer.writer.control(FrameKind::kRefuse, offer.number, Bytes(reason.begin(), reason.end()));
    }
    receive.handle.fail(mismatch);
    ++changes_;
    return;
  }
  if (!peer.mail) {
    peer.writer.control(FrameKind::kAccept, offer.number);
    if (offer.size_bytes == 0) return complete(receive.handle, {peer.rank});
    peer.arriving.emplace(offer.number, std::move(receive));
    return;
  }
  if (content.size() == receive.into.size()) {
    if (!content.empty()) std::memcpy(receive.into.data(), content.data(), content.size());
    post(peer, {.number = offer.number, .kind = MailKind::kTaken}, {});
    return complete(receive.handle, {peer.rank});
  }
  Copy copy{.peer = &peer, .offer = std::move(offer), .receive = std::move(receive)};
  if (!copy_now(copy)) copies_.push_back(std::move(copy));
}

void Messenger::take_offer(Peer& peer, Offer offer, std::span<const std::byte> content) {
  if (offer.number <= peer.last_offer) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("rank {} offered message {} after message {}", peer.rank, offer.number, peer.last_offer));
  }
  if (!content.empty() && content.size() != offer.size_bytes) {
    throw Error(ErrorCode::kProtocol, fmt::format("rank {} offered message {} of {} bytes with {} of them", peer.rank,
                                                  offer.number, offer.size_bytes, content.size()));
  }
  peer.last_offer = offer.number;
  const auto meets = [&](const Receive& receive) {
    return receive.tag == offer.tag && (!receive.peer || *receive.peer == peer.rank);
  };
  const auto found = std::ranges::find_if(receives_, meets);
  if (found != receives_.end()) {
    Receive receive = std::move(*found);
    receives_.erase(found);
    accept(peer, std::move(offer), content, std::move(receive));
    return;
  }
  if (peer.waiting.size() >= PointToPoint::kMostWaitingMessages) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} messages of rank {} wait on rank {} to be received; no more are accepted",
                            peer.waiting.size(), peer.rank, group_.rank()));
  }
  if (!content.empty() && kept_bytes_ + content.size() <= kMostKeptBytes) {
    offer.content.emplace(content.begin(), content.end());
    kept_bytes_ += content.size();
  }
  peer.waiting.push_back(std::move(offer));
}

Send Messenger::take_offered(Peer& peer, std::uint64_t number, std::string_view word) {
  const auto found = peer.offered.find(number);
  if (found == peer.offered.end()) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("rank {} {} message {}, which it was not offered", peer.rank, word, number));
  }
  Send send = std::move(found->second);
  peer.offered.erase(found);
  return send;
}

void Messenger::accepted(Peer& peer, std::uint64_t number) {
  Send send = take_offered(peer, number, "accepted");
  if (!peer.mail) {
    peer.writer.message(number, send.message, send.handle);
  } else if (send.message.empty()) {
    complete(send.handle, {});
  } else {
    peer.mail->sending.push_back({number, send.message, std::move(send.handle)});
    flush(peer);
  }
}

void Messenger::refused(Peer& peer, std::uint64_t number, std::string_view reason) {
  take_offered(peer, number, "refused").handle.fail(Error(ErrorCode::kMismatch, std::string(reason)));
  ++changes_;
}

std::span<std::byte> Messenger::place_of(Peer& peer, std::uint64_t number, std::size_t size_bytes) {
  const auto found = peer.arriving.find(number);
  if (found == peer.arriving.end() || size_bytes > found->second.into.size() - found->second.arrived_bytes ||
      size_bytes == 0) {
    throw Error(ErrorCode::kProtocol, fmt::format("rank {} sent {} bytes of message {}, which rank {} does not expect",
                                                  peer.rank, size_bytes, number, group_.rank()));
  }
  return found->second.into.subspan(found->second.arrived_bytes, size_bytes);
}

void Messenger::piece_arrived(Peer& peer, std::uint64_t number, std::size_t size_bytes) {
  const auto found = peer.arriving.find(number);
  found->second.arrived_bytes += size_bytes;
  if (found->second.arrived_bytes < found->second.into.size()) return;
  const MessageHandle handle = found->second.handle;
  peer.arriving.erase(found);
  complete(handle, {peer.rank});
}

void Messenger::complete(const MessageHandle& handle, Arrival arrival) {
  handle.complete(arrival);
  ++changes_;
}

void Messenger::peer_left(Peer& peer, const Error& reason) {
  peer.lost = reason;
  peer.writer.fail(reason);
  for (const auto& [number, send] : std::exchange(peer.offered, {})) send.handle.fail(reason);
  for (const auto& [number, receive] : std::exchange(peer.arriving, {})) receive.handle.fail(reason);
  for (const Offer& offer : peer.waiting) kept_bytes_ -= offer.content ? offer.content->size() : 0;
  peer.waiting.clear();
  if (peer.mail) {
    peer.mail->in.stop();
    peer.mail->waiting.clear();
    for (const Sending& message : std::exchange(peer.mail->sending, {})) message.handle.fail(reason);
    peer.mail->wants_room = false;
    std::deque<Copy> others;
    for (Copy& copy : copies_) {
      if (copy.peer == &peer) {
        copy.receive.handle.fail(reason);
      } else {
        others.push_back(std::move(copy));
      }
    }
    copies_ = std::move(others);
  }
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
  ++changes_;
}

void Messenger::fail_all(const Error& failure) {
  const MutexLock lock(mutex_);
  failure_ = failure;
  copying_is_over_ = true;
  // The others may be copying what is sent from here: they find out that it may be gone when they are through.
  if (desk_ != nullptr) desk_->closed.store(1, std::memory_order_seq_cst);
  for (const auto& peer : peers_) {
    if (!peer->lost) peer_left(*peer, failure);
  }
  alert_ourselves();
}

void Messenger::shutdown() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  while (helpers_ > 0) changed_.wait(mutex_);
}

void Messenger::close() {
  shutdown();
  const MutexLock lock(mutex_);
  mails_.clear();
  peers_.clear();
  segment_.reset();
}

}  // namespace gyre::group::internal
