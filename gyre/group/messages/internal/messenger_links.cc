// The service thread: links to ranks of other hosts, and whatever no caller waits for.
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <string>
#include <utility>

#include "gyre/group/messages/internal/messenger.h"

namespace gyre::group::internal {

namespace {

/// A thread that has just moved messages comes back within microseconds, mostly. So that nobody has to wake this one
/// in between, it looks every millisecond for as long as messages come, and this often after the last.
constexpr int kQuietLooks = 10;
constexpr int kLookMilliseconds = 1;

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

}  // namespace

void Messenger::arrived(Peer& peer, const net::FrameHeader& header, std::span<const std::byte> payload) {
  const std::uint64_t number = header.collective;
  const auto kind = static_cast<FrameKind>(header.step);
  if (peer.mail) {
    if (kind == FrameKind::kKnock) return;  // This thread is awake, which is all that it is for.
  } else {
    switch (kind) {
      case FrameKind::kOffer: return take_offer(peer, decode_offer(number, payload), {});
      case FrameKind::kPiece: return piece_arrived(peer, number, payload.size());
      case FrameKind::kAccept: return accepted(peer, number);
      case FrameKind::kRefuse: return refused(peer, number, as_text(payload));
      case FrameKind::kKnock: break;
    }
  }
  throw Error(ErrorCode::kProtocol,
              fmt::format("rank {} sent a frame of kind {} about message {}, which makes no sense", peer.rank,
                          header.step, number));
}

void Messenger::exchange_with(Peer& peer) {
  for (const auto& line : peer.lines) {
    line->reader.read([&](const net::FrameHeader& header)
                          GYRE_REQUIRES(mutex_) { return place_of(peer, header.collective, header.payload_bytes); },
                      [&](const net::FrameHeader& header, std::span<const std::byte> payload)
                          GYRE_REQUIRES(mutex_) { arrived(peer, header, payload); });
  }
  peer.writer.write();
}

void Messenger::say_last_words() {
  for (const auto& [rank, peer] : peers_) {
    if (peer->lost) continue;
    if (peer->mail) flush(*peer);
    try {
      peer->writer.write();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) throw;  // Who is gone does not need them.
    }
  }
  alert_peers();
}

void Messenger::wait_for_events() {
  polled_.assign({{wake_.fd(), POLLIN, 0}, {group_.abort_signal().fd(), POLLIN, 0}});
  int timeout_ms = -1;
  {
    const MutexLock lock(mutex_);
    for (const auto& [rank, peer] : peers_) {
      if (peer->lost) continue;
      for (const auto& line : peer->lines) polled_.push_back({line->stream->fd(), POLLIN, 0});
      // What is written goes over the first one.
      if (!peer->writer.idle()) polled_[polled_.size() - peer->lines.size()].events |= POLLOUT;
    }
    quiet_looks_ = std::exchange(records_seen_, records_) == records_ ? quiet_looks_ + 1 : 0;
    service_ = segment_ && quiet_looks_ < kQuietLooks ? Service::kLooksSoon : Service::kAsleep;
    if (service_ == Service::kLooksSoon) timeout_ms = kLookMilliseconds;
    if (service_ == Service::kAsleep) quiet_looks_ = kQuietLooks;
    if (segment_ && !leading_ && !leave_to_service()) timeout_ms = 0;
  }
  if (::poll(polled_.data(), polled_.size(), timeout_ms) < 0 && errno != EINTR) throw system_error("poll", errno);
  wake_.clear();
}

Error Messenger::cause_of_loss(const Peer& peer, const Error& seen) {
  std::optional<Error> cause;
  {
    const Unlocked unlocked(mutex_);
    cause = group_.cause_of_loss(peer.rank, seen);
  }
  return *cause;
}

bool Messenger::serve_once() {
  service_ = Service::kAwake;
  if (segment_ && !leading_) desk_->attention.store(Attention::kLookedAt, std::memory_order_relaxed);
  if (broken_) throw Error(*broken_);
  if (stopping_) {
    say_last_words();
    return true;
  }
  const std::uint64_t changes_before = changes_;
  note_exits();
  for (const auto& [rank, peer] : peers_) {
    if (peer->lost) continue;
    try {
      exchange_with(*peer);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) throw;
      // All that it has written before it ended.
      while (peer->mail && peer->mail->in.pending()) drain(*peer);
      const Error cause = cause_of_loss(*peer, error);
      if (cause.code() != ErrorCode::kPeerLeft) throw Error(cause);
      peer_left(*peer, cause);
    }
  }
  if (!leading_) drain_mail();
  while (!copies_.empty()) {
    Copy copy = std::move(copies_.front());
    copies_.pop_front();
    run_copy(std::move(copy));
  }
  alert_peers();
  if (changes_ != changes_before) alert_ourselves();
  return false;
}

void Messenger::serve() {
  for (;;) {
    wait_for_events();
    group_.abort_signal().throw_if_triggered();
    const MutexLock lock(mutex_);
    if (serve_once()) return;
  }
}

void Messenger::run() {
  Error failure = shut_down();
  try {
    serve();
  } catch (const std::exception& error) {
    failure = as_error(error);
    group_.abort(failure);
    failure = group_.abort_signal().reason().value_or(failure);
  }
  fail_all(failure);
}

}  // namespace gyre::group::internal
