// Messages between ranks of one host: through rings in shared memory, and straight out of the sender's.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gyre/base/cores.h"
#include "gyre/group/messages/internal/messenger.h"

namespace gyre::group::internal {

namespace {

// A wait has three stages. Spinning answers fastest but is right only where the others have cores of their own;
// yielding lets ranks that share a core take turns; sleeping costs some 50 µs to wake and nothing meanwhile.
// A caller in Python takes 10 µs from one message to the next.
constexpr int kMostSpins = 400;
constexpr int kMostYields = 200;
/// Back stop of a sleep, against peers that end between writing and waking.
constexpr std::chrono::milliseconds kLongestSleep{100};
/// Records of one peer in a row.
constexpr int kMostRecordsAtOnce = 256;
/// Copied under the mutex; longer ones let others in meanwhile.
constexpr std::size_t kMostBytesCopiedAtOnce = std::size_t{64} << 10;
/// Copied by receive() itself where the message is there already.
constexpr std::size_t kMostBytesCopiedByReceive = std::size_t{1} << 20;
/// From here on two ranks that wait for each other pass a message through the ring, even if they share a core.
constexpr std::size_t kLeastBytesForTurns = std::size_t{64} << 10;
/// How long a message has to be for one look whether its sender waits.
constexpr std::size_t kBytesPerSpin = 1024;
/// Between two looks whether the group has failed.
constexpr std::size_t kCopyPieceBytes = std::size_t{1} << 20;

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool over(std::optional<SteadyClock::time_point> until) { return until && SteadyClock::now() >= *until; }

}  // namespace

void Messenger::open_mail(Deadline deadline) {
  const Topology& topology = group_.topology();
  const int local_size = topology.local_size();
  segment_ = std::make_unique<MailSegment>(group_.share_segment(channel_, MailSegment::bytes_for(local_size), deadline),
                                           local_size);
  desk_ = &segment_->desk(topology.local_rank());
  desk_->probe_address.store(reinterpret_cast<std::uint64_t>(&probe_), std::memory_order_relaxed);
  desk_->probe_value.store(probe_, std::memory_order_relaxed);
  spins_ = local_size <= usable_cores();
  mails_.resize(static_cast<std::size_t>(local_size) - 1);
}

std::unique_ptr<Mail> Messenger::mail_of(int rank) {
  const Topology& topology = group_.topology();
  const auto place = std::ranges::find(topology.local_ranks(), rank);
  if (!segment_ || place == topology.local_ranks().end()) return nullptr;
  const int local_rank = static_cast<int>(place - topology.local_ranks().begin());
  return std::make_unique<Mail>(*segment_, topology.local_rank(), local_rank, topology.self(), topology.member(rank),
                                topology.describe(rank));
}

void Messenger::drain_mail() {
  for (const auto& [rank, peer] : peers_) {
    if (peer->mail && !peer->lost) drain(*peer);
  }
}

void Messenger::drain(Peer& peer) {
  Mail& mail = *peer.mail;
  int count = 0;
  if (mail.in.pending()) {
    const MailReader::Take take = [&](const MailHead& head, std::span<const std::byte> payload)
                                      GYRE_REQUIRES(mutex_) { take_record(peer, head, payload); };
    while (count < kMostRecordsAtOnce && mail.in.read(take)) ++count;
    records_ += static_cast<std::uint64_t>(count);
    if (mail.in.writer_is_starved()) mail.to_alert = true;
  }
  if (mail.wants_room) flush(peer);
}

void Messenger::take_record(Peer& peer, const MailHead& head, std::span<const std::byte> payload) {
  switch (head.kind) {
    case MailKind::kOffer:
      return take_offer(peer,
                        {.number = head.number,
                         .tag = head.tag,
                         .type = head.type,
                         .size_bytes = head.size_bytes,
                         .address = head.address},
                        payload);
    case MailKind::kTaken: return complete(take_offered(peer, head.number, "took").handle, {});
    case MailKind::kRefuse: return refused(peer, head.number, as_text(payload));
    case MailKind::kAccept: return accepted(peer, head.number);
    case MailKind::kPiece: {
      const std::span<std::byte> place = place_of(peer, head.number, payload.size());
      std::memcpy(place.data(), payload.data(), place.size());
      return piece_arrived(peer, head.number, place.size());
    }
    case MailKind::kSkip: break;
  }
  throw Error(ErrorCode::kProtocol, fmt::format("rank {} wrote a record of kind {} about message {}, which makes no "
                                                "sense",
                                                peer.rank, static_cast<int>(head.kind), head.number));
}

void Messenger::post(Peer& peer, const MailHead& head, std::span<const std::byte> payload, bool whole) {
  Mail& mail = *peer.mail;
  mail.to_alert = true;
  try {
    if (mail.waiting.empty() && mail.out.write(head, payload)) return;
  } catch (const Error& error) {
    broken_ = error;
    return wake_.notify();
  }
  mail.waiting.push_back({head, whole, whole ? std::string() : std::string(as_text(payload))});
  flush(peer);
}

void Messenger::flush(Peer& peer) {
  Mail& mail = *peer.mail;
  try {
    if (!flush_some(peer)) {
      mail.wants_room = true;
      mail.out.ask_for_room();
      if (!flush_some(peer)) return;
    }
    mail.wants_room = false;
  } catch (const Error& error) {
    broken_ = error;
    wake_.notify();
  }
}

bool Messenger::flush_some(Peer& peer) {
  Mail& mail = *peer.mail;
  while (!mail.waiting.empty()) {
    const WaitingRecord& record = mail.waiting.front();
    const auto offered = peer.offered.find(record.head.number);
    const bool whole = record.whole && offered != peer.offered.end();
    if (!mail.out.write(record.head, whole ? offered->second.message : as_bytes(record.text))) return false;
    mail.waiting.pop_front();
    mail.to_alert = true;
  }
  // Several pieces fit, so that both ranks copy at the same time.
  const std::size_t piece_bytes = mail.out.longest_payload() / 2 - 64;
  while (!mail.sending.empty()) {
    Sending& message = mail.sending.front();
    const auto piece = message.left.first(std::min(piece_bytes, message.left.size()));
    if (!mail.out.write({.number = message.number, .kind = MailKind::kPiece}, piece)) return false;
    mail.to_alert = true;
    message.left = message.left.subspan(piece.size());
    if (!message.left.empty()) continue;
    complete(message.handle, {});
    mail.sending.pop_front();
  }
  return true;
}

void Messenger::alert_peers() {
  const auto to_alert = [](const auto& entry) { return entry.second->mail && entry.second->mail->to_alert; };
  if (std::ranges::none_of(peers_, to_alert)) return;
  // No alert is lost. Both of us write, then read: we the records, then their attention; they their attention, then
  // whether there are records.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const auto& [rank, peer] : peers_) {
    if (!peer->mail || !std::exchange(peer->mail->to_alert, false)) continue;
    Desk& desk = peer->mail->desk;
    Attention seen = desk.attention.load(std::memory_order_relaxed);
    if (seen != Attention::kAsleep && seen != Attention::kUnattended) continue;
    const bool asleep = seen == Attention::kAsleep;
    if (!desk.attention.compare_exchange_strong(seen, Attention::kLookedAt)) continue;
    if (asleep) {
      ring_doorbell(desk);
    } else {
      knock(*peer);
    }
  }
}

void Messenger::knock(Peer& peer) {
  if (peer.lost) return;
  peer.writer.control(FrameKind::kKnock, 0);
  try {
    peer.writer.write();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;  // Which the service thread will see as well.
  }
  if (!peer.writer.idle()) wake_.notify();
}

void Messenger::hurry_peers() {
  for (const auto& [rank, peer] : peers_) {
    if (!peer->mail || peer->lost) continue;
    Attention soon = Attention::kSoon;
    if (peer->mail->desk.attention.compare_exchange_strong(soon, Attention::kLookedAt)) knock(*peer);
  }
}

void Messenger::alert_ourselves() {
  ++changes_;
  if (followers_ > 0) changed_.notify_all();
  if (desk_ == nullptr) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Attention asleep = Attention::kAsleep;
  if (desk_->attention.compare_exchange_strong(asleep, Attention::kLookedAt)) ring_doorbell(*desk_);
}

bool Messenger::mail_pending() const {
  return std::ranges::any_of(mails(), [](const Mail* mail) {
    return mail->in.pending() || (mail->wants_room.load(std::memory_order_relaxed) && mail->out.room_was_made());
  });
}

bool Messenger::something_changed(std::uint64_t changes_seen) const {
  return changes_.load(std::memory_order_acquire) != changes_seen || mail_pending();
}

bool Messenger::may_spin() const {
  if (!spins_) return false;
  // Two ranks that wait for each other can be on one processor for a long time while others keep the rest busy.
  const auto processor = static_cast<std::uint32_t>(::sched_getcpu() + 1);
  if (desk_->processor.load(std::memory_order_relaxed) != processor) {
    desk_->processor.store(processor, std::memory_order_relaxed);
  }
  return std::ranges::none_of(
      mails(), [&](const Mail* mail) { return mail->desk.processor.load(std::memory_order_relaxed) == processor; });
}

bool Messenger::look_for_a_while(std::uint64_t changes_seen) const {
  const int spins = may_spin() ? kMostSpins : 0;
  for (int i = 0; i < spins; ++i) {
    if (something_changed(changes_seen)) return true;
    pause_core();
  }
  for (int i = 0; i < kMostYields; ++i) {
    if (something_changed(changes_seen)) return true;
    ::sched_yield();
  }
  return false;
}

void Messenger::sleep_until_changed(std::uint64_t changes_seen, std::optional<SteadyClock::time_point> until) {
  std::chrono::nanoseconds longest = kLongestSleep;
  if (until) longest = std::min<std::chrono::nanoseconds>(longest, *until - SteadyClock::now());
  const std::uint32_t observed = desk_->doorbell.load(std::memory_order_seq_cst);
  desk_->attention.store(Attention::kAsleep, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // See alert_peers().
  if (longest.count() > 0 && !something_changed(changes_seen)) sleep_at(*desk_, observed, longest.count());
  desk_->attention.store(Attention::kLookedAt, std::memory_order_seq_cst);
}

void Messenger::help(const Completion<Arrival>& outcome, std::optional<SteadyClock::time_point> until) {
  MutexLock lock(mutex_);
  if (!segment_) return;
  ++helpers_;
  while (!outcome.done() && !over(until)) {
    if (!copies_.empty()) {
      Copy copy = std::move(copies_.front());
      copies_.pop_front();
      run_copy(std::move(copy));
    } else if (leading_ || broken_) {
      follow(until);
    } else {
      lead(outcome, until);
    }
  }
  if (!copies_.empty()) wake_.notify();  // Of messages that others wait for.
  if (--helpers_ == 0 && stopping_) changed_.notify_all();
}

void Messenger::follow(std::optional<SteadyClock::time_point> until) {
  ++followers_;
  if (until) {
    changed_.wait_until(mutex_, *until);
  } else {
    changed_.wait(mutex_);
  }
  --followers_;
}

void Messenger::lead(const Completion<Arrival>& outcome, std::optional<SteadyClock::time_point> until) {
  leading_ = true;
  desk_->attention.store(Attention::kLookedAt, std::memory_order_relaxed);
  try {
    for (;;) {
      const std::uint64_t before = changes_;
      drain_mail();
      alert_peers();
      if (changes_ != before && followers_ > 0) changed_.notify_all();
      if (outcome.done() || over(until)) break;
      if (copies_.empty()) {
        wait_for_mail(until);
        continue;
      }
      Copy copy = std::move(copies_.front());
      copies_.pop_front();
      run_copy(std::move(copy), true);
    }
    leading_ = false;
    hand_over();
  } catch (const std::exception& error) {
    leading_ = false;
    broken_ = as_error(error);
    wake_.notify();
  }
  if (followers_ > 0) changed_.notify_all();
}

void Messenger::wait_for_mail(std::optional<SteadyClock::time_point> until) {
  const std::uint64_t changes = changes_;
  {
    const Unlocked unlocked(mutex_);
    if (look_for_a_while(changes)) return;
  }
  hurry_peers();
  const Unlocked unlocked(mutex_);
  sleep_until_changed(changes, until);
}

bool Messenger::leave_to_service() {
  const Attention attention = service_ == Service::kAwake       ? Attention::kLookedAt
                              : service_ == Service::kLooksSoon ? Attention::kSoon
                                                                : Attention::kUnattended;
  desk_->attention.store(attention, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // See alert_peers().
  return service_ != Service::kAsleep || !mail_pending();
}

void Messenger::hand_over() {
  while (!leave_to_service()) {
    desk_->attention.store(Attention::kLookedAt, std::memory_order_relaxed);
    drain_mail();
    alert_peers();
  }
}

bool Messenger::both_wait(const Mail& mail, std::size_t size_bytes) const {
  if (!leading_) return false;
  const auto sender_waits = [&] {
    const Attention sender = mail.desk.attention.load(std::memory_order_relaxed);
    return sender == Attention::kLookedAt || sender == Attention::kAsleep;
  };
  // Its offer may be here before it waits. Looking costs at most a seventh of the time of the message.
  const int spins = spins_ ? static_cast<int>(std::min<std::size_t>(kMostSpins, size_bytes / kBytesPerSpin)) : 0;
  for (int i = 0; i < spins && !sender_waits(); ++i) pause_core();
  return sender_waits();
}

bool Messenger::copy_now(Copy& copy) {
  Mail& mail = *copy.peer->mail;
  // Two ranks that copy through the cache are faster than one that copies out of the other's memory.
  const bool together =
      both_wait(mail, copy.receive.into.size()) && (spins_ || copy.receive.into.size() >= kLeastBytesForTurns);
  if (together || local_ == LocalPath::kPieces || !mail.memory.readable(mail.desk)) {
    end_copy(std::move(copy), false);
    return true;
  }
  if (copy.receive.into.size() > kMostBytesCopiedAtOnce) return false;
  const bool copied = mail.memory.read(copy.receive.into, copy.offer.address);
  end_copy(std::move(copy), copied);
  return true;
}

void Messenger::begin_copy() {
  if (copies_.empty()) return;
  if (copies_.back().receive.into.size() > kMostBytesCopiedByReceive) {
    alert_ourselves();  // Whoever waits, or the service thread.
    return wake_.notify();
  }
  Copy copy = std::move(copies_.back());
  copies_.pop_back();
  run_copy(std::move(copy));
}

void Messenger::look_in_between() {
  try {
    drain_mail();
    alert_peers();
  } catch (const std::exception& error) {
    broken_ = as_error(error);
    wake_.notify();
  }
}

void Messenger::run_copy(Copy copy, bool leads) {
  ++helpers_;
  const PeerMemory& memory = copy.peer->mail->memory;
  bool copied = true;
  std::span<std::byte> left = copy.receive.into;
  for (std::uint64_t address = copy.offer.address; copied && !left.empty();) {
    const auto piece = left.first(std::min(kCopyPieceBytes, left.size()));
    {
      const Unlocked unlocked(mutex_);
      copied = !copying_is_over_ && memory.read(piece, address);
    }
    left = left.subspan(piece.size());
    address += piece.size();
    if (leads && !left.empty() && !broken_) look_in_between();
  }
  end_copy(std::move(copy), copied);
  alert_peers();
  alert_ourselves();
  if (--helpers_ == 0 && stopping_) changed_.notify_all();
}

void Messenger::end_copy(Copy copy, bool copied) {
  Peer& peer = *copy.peer;
  if (failure_ || peer.lost) {
    copy.receive.handle.fail(failure_ ? *failure_ : *peer.lost);
    return;
  }
  if (!copied) {
    post(peer, {.number = copy.offer.number, .kind = MailKind::kAccept}, {});
    peer.arriving.emplace(copy.offer.number, std::move(copy.receive));
    return;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (peer.mail->desk.closed.load(std::memory_order_seq_cst) != 0) {
    // What was copied may not be the message any more. It fails as soon as the link says that the peer is gone.
    peer.arriving.emplace(copy.offer.number, std::move(copy.receive));
    return;
  }
  post(peer, {.number = copy.offer.number, .kind = MailKind::kTaken}, {});
  complete(copy.receive.handle, {peer.rank});
}

}  // namespace gyre::group::internal
