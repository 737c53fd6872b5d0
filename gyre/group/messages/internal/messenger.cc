#include "gyre/group/messages/internal/messenger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gyre/base/random.h"
#include "gyre/base/thread.h"
#include "gyre/group/internal/group_state.h"

namespace gyre::group::internal {

namespace {

/// Of a link, and of the shared memory.
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

Error shut_down() { return {ErrorCode::kShutDown, "the process group was shut down on this rank"}; }

Messenger::Messenger(Group& group, std::uint64_t channel, PointToPoint::Describe describe, LocalPath local)
    : group_(group), channel_(channel), describe_(std::move(describe)), local_(local), probe_(secret_number()) {
  const MutexLock lock(mutex_);
  if (local_ != LocalPath::kLinks && group_.topology().local_size() > 1) open_mail(Deadline::after(kLinkTimeout));
}

void Messenger::start() {
  if (group_.size() == 1) return;
  group_.abort_signal().add_notifier(&wake_);
  group_.accept(channel_, [weak = weak_from_this()](int rank, std::unique_ptr<net::Stream> stream) {
    if (const auto self = weak.lock()) self->take_link(rank, std::move(stream));
  });
}

void Messenger::ensure_thread() {
  if (!thread_.joinable()) thread_ = start_thread("point-to-point messages", [this] { run(); });
}

Peer* Messenger::known_peer(int rank) {
  const auto found = peers_.find(rank);
  return found == peers_.end() ? nullptr : found->second.get();
}

Peer& Messenger::add_line(int rank, std::unique_ptr<net::Stream> stream) {
  const auto channel = static_cast<std::uint32_t>(channel_);
  auto line = std::make_unique<Line>(std::move(stream), channel);
  if (Peer* const known = known_peer(rank)) {
    known->lines.push_back(std::move(line));
    return *known;
  }
  auto peer = std::make_unique<Peer>(rank, std::move(line), channel);
  peer->mail = mail_of(rank);
  if (peer->mail) {
    const std::size_t count = mail_count_.load(std::memory_order_relaxed);
    mails_[count] = peer->mail.get();
    mail_count_.store(count + 1, std::memory_order_release);
  }
  return *peers_.emplace(rank, std::move(peer)).first->second;
}

void Messenger::take_link(int rank, std::unique_ptr<net::Stream> stream) {
  const MutexLock lock(mutex_);
  if (ended()) return;
  const Peer* const known = known_peer(rank);
  if (known != nullptr && known->lines.size() >= Peer::kMostLines) return;  // It makes one at most.
  try {
    ensure_thread();
    add_line(rank, std::move(stream));
  } catch (const std::exception&) {
    return;  // The link is closed, which says to the other rank that nothing can be sent here.
  }
  wake_.notify();
  alert_ourselves();
}

Peer* Messenger::peer_for_sending(int rank, const MessageHandle& handle) {
  while (connecting_.contains(rank)) connected_.wait(mutex_);
  try {
    if (!ended() && !gone_.contains(rank) && known_peer(rank) == nullptr) {
      connecting_.insert(rank);
      std::unique_ptr<net::Stream> stream;
      std::optional<Error> failure;
      {
        const Unlocked unlocked(mutex_);
        try {
          stream = group_.connect(rank, channel_, Deadline::after(kLinkTimeout));
        } catch (const std::exception& error) {  // Whatever it is, others wait for the end of this attempt.
          failure = as_error(error);
        }
      }
      connecting_.erase(rank);
      connected_.notify_all();
      if (stream && !ended()) {
        ensure_thread();
        add_line(rank, std::move(stream));
        wake_.notify();
      } else if (failure && known_peer(rank) == nullptr && !ended()) {
        handle.fail(*failure);
        return nullptr;
      }
    }
  } catch (const Error& error) {  // No thread.
    handle.fail(error);
    return nullptr;
  }
  if (failure_ || stopping_) {
    handle.fail(failure_ ? *failure_ : shut_down());
    return nullptr;
  }
  if (const auto gone = gone_.find(rank); gone != gone_.end()) {
    handle.fail(gone->second);
    return nullptr;
  }
  return known_peer(rank);
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
  Peer* const found = peer_for_sending(rank, handle);
  if (found == nullptr) return handle;
  Peer& peer = *found;
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
  if (found == peer.waiting.end()) return false;
  Offer offer = std::move(*found);
  peer.waiting.erase(found);
  const std::optional<Bytes> content = std::move(offer.content);
  if (content) kept_bytes_ -= content->size();
  accept(peer, std::move(offer), content ? std::span<const std::byte>(*content) : std::span<const std::byte>{},
         std::move(receive));
  return true;
}

std::optional<Error> Messenger::hopeless(std::optional<int> rank) {
  if (failure_ || stopping_) return failure_ ? *failure_ : shut_down();
  if (rank) {
    const auto found = gone_.find(*rank);
    return found == gone_.end() ? std::nullopt : std::optional(found->second);
  }
  const bool all_gone = static_cast<int>(gone_.size()) == group_.size() - 1;
  return all_gone ? std::optional(gone_.begin()->second) : std::nullopt;
}

MessageHandle Messenger::receive(Receive receive) {
  if (receive.peer) check_peer(*receive.peer, "a receive from");
  MessageHandle handle(shared_from_this(), note_times_);
  receive.handle = handle;
  if (group_.size() == 1) {
    throw Error(ErrorCode::kInvalidArgument, "a receive from any rank, in a group of one rank");
  }
  const MutexLock lock(mutex_);
  for (const auto& [rank, peer] : peers_) {
    if (ended() || !meet_waiting(*peer, receive)) continue;
    if (!peer->mail) wake_.notify();
    begin_copy();
    alert_peers();
    return handle;
  }
  if (!ended()) note_exits();
  if (const auto reason = hopeless(receive.peer)) {
    handle.fail(*reason);
    return handle;
  }
  ensure_thread();  // Which sees a failure of the group.
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
  rank_is_gone(peer.rank, reason);
}

void Messenger::rank_is_gone(int rank, const Error& reason) {
  gone_.emplace(rank, reason);
  const bool all_gone = static_cast<int>(gone_.size()) == group_.size() - 1;
  std::deque<Receive> kept;
  for (Receive& receive : receives_) {
    if (all_gone || receive.peer == rank) {
      receive.handle.fail(reason);
    } else {
      kept.push_back(std::move(receive));
    }
  }
  receives_ = std::move(kept);
  ++changes_;
}

void Messenger::note_exits() {
  const int exits = group_.exit_count();
  if (std::exchange(exits_seen_, exits) == exits) return;
  for (int rank = 0; rank < group_.size(); ++rank) {
    // What a peer has sent before it left comes first: its link says when that is all.
    if (rank == group_.rank() || !group_.has_left(rank) || known_peer(rank) != nullptr || gone_.contains(rank))
      continue;
    rank_is_gone(rank, group::peer_left(group_.topology(), rank, group_.was_lost(rank)));
  }
}

void Messenger::fail_all(const Error& failure) {
  const MutexLock lock(mutex_);
  failure_ = failure;
  copying_is_over_ = true;
  // The others may be copying what is sent from here: they find out that it may be gone when they are through.
  if (desk_ != nullptr) desk_->closed.store(1, std::memory_order_seq_cst);
  for (const auto& [rank, peer] : peers_) {
    if (!peer->lost) peer_left(*peer, failure);
  }
  for (const Receive& receive : std::exchange(receives_, {})) receive.handle.fail(failure);
  alert_ourselves();
}

void Messenger::shutdown() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;  // No thread is started from here on.
  }
  wake_.notify();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  if (!failure_) failure_ = shut_down();  // There was no thread.
  if (desk_ != nullptr) desk_->closed.store(1, std::memory_order_seq_cst);
  while (helpers_ > 0) changed_.wait(mutex_);
  while (!connecting_.empty()) connected_.wait(mutex_);
}

void Messenger::close() {
  if (group_.size() > 1) {
    group_.accept(channel_, {});
    group_.abort_signal().remove_notifier(&wake_);
  }
  shutdown();
  const MutexLock lock(mutex_);
  mail_count_ = 0;
  peers_.clear();
  segment_.reset();
}

}  // namespace gyre::group::internal
