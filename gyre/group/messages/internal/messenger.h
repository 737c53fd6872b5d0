#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/group/messages/internal/peer.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/net/notifier.h"

namespace gyre::group::internal {

/// Lets go of a Mutex for a scope.
class GYRE_SCOPED_CAPABILITY Unlocked {
 public:
  explicit Unlocked(Mutex& mutex) GYRE_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() GYRE_RELEASE() { mutex_.lock(); }  // Ends the scope, which gives the mutex back.
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Mutex& mutex_;
};

/// Why messages fail after Messenger::shutdown().
Error shut_down();

/// What a PointToPoint consists of. The ranks of other hosts are reached over links, which the service thread serves;
/// those of this host through shared memory, at which one thread at a time looks: a caller that waits, or else the
/// service thread. A rank becomes a peer, with a link, by the first message from or to it; the service thread starts
/// with the first use. Thread-safe.
class Messenger final : public MessageHandle::Helper, public std::enable_shared_from_this<Messenger> {
 public:
  Messenger(Group& group, std::uint64_t channel, PointToPoint::Describe describe, LocalPath local);

  void start();  ///< Once, before all that follows: from here on other ranks can reach this one.
  MessageHandle send(int rank, Send send);
  MessageHandle receive(Receive receive);
  void shutdown();
  void note_times() { note_times_ = true; }
  void close();  ///< Shuts down and closes the links: the others see that this rank is through.

  void help(const Completion<Arrival>& outcome, std::optional<SteadyClock::time_point> until) override;

 private:
  // messenger.cc: which send meets which receive, and what becomes of them.

  void check_peer(int peer, std::string_view what) const;
  bool ended() const GYRE_REQUIRES(mutex_) { return failure_ || stopping_; }
  /// Null where the rank cannot be reached any more, and `handle` has failed. May take a while, and holds up nobody
  /// then.
  Peer* peer_for_sending(int rank, const MessageHandle& handle) GYRE_REQUIRES(mutex_);
  /// Null for a rank without a link.
  Peer* known_peer(int rank) GYRE_REQUIRES(mutex_);
  Peer& add_line(int rank, std::unique_ptr<net::Stream> stream) GYRE_REQUIRES(mutex_);
  /// A link that another rank has opened.
  void take_link(int rank, std::unique_ptr<net::Stream> stream) GYRE_EXCLUDES(mutex_);
  void ensure_thread() GYRE_REQUIRES(mutex_);
  /// True when the receive has met an offer of `peer`.
  bool meet_waiting(Peer& peer, Receive& receive) GYRE_REQUIRES(mutex_);
  /// Why a receive from `rank` (empty: from anybody) can never complete.
  std::optional<Error> hopeless(std::optional<int> rank) GYRE_REQUIRES(mutex_);
  void take_offer(Peer& peer, Offer offer, std::span<const std::byte> content) GYRE_REQUIRES(mutex_);
  void accept(Peer& peer, Offer offer, std::span<const std::byte> content, Receive receive) GYRE_REQUIRES(mutex_);
  void accepted(Peer& peer, std::uint64_t number) GYRE_REQUIRES(mutex_);
  void refused(Peer& peer, std::uint64_t number, std::string_view reason) GYRE_REQUIRES(mutex_);
  void piece_arrived(Peer& peer, std::uint64_t number, std::size_t size_bytes) GYRE_REQUIRES(mutex_);
  Send take_offered(Peer& peer, std::uint64_t number, std::string_view word) GYRE_REQUIRES(mutex_);
  /// Where the next `size_bytes` of an accepted message go.
  std::span<std::byte> place_of(Peer& peer, std::uint64_t number, std::size_t size_bytes) GYRE_REQUIRES(mutex_);
  void complete(const MessageHandle& handle, Arrival arrival) GYRE_REQUIRES(mutex_);
  void peer_left(Peer& peer, const Error& reason) GYRE_REQUIRES(mutex_);
  /// Fails the receives that wait for this rank alone, or for anybody when nobody is left.
  void rank_is_gone(int rank, const Error& reason) GYRE_REQUIRES(mutex_);
  /// Ranks that have left without ever having been peers: no link says so.
  void note_exits() GYRE_REQUIRES(mutex_);
  void fail_all(const Error& failure) GYRE_EXCLUDES(mutex_);

  // messenger_links.cc: the service thread and the links.

  void run();
  void serve();
  /// One round; true when it is time to stop.
  bool serve_once() GYRE_REQUIRES(mutex_);
  void wait_for_events() GYRE_EXCLUDES(mutex_);
  /// May take a second, in which it holds up nobody.
  Error cause_of_loss(const Peer& peer, const Error& seen) GYRE_REQUIRES(mutex_);
  void exchange_with(Peer& peer) GYRE_REQUIRES(mutex_);
  void arrived(Peer& peer, const net::FrameHeader& header, std::span<const std::byte> payload) GYRE_REQUIRES(mutex_);
  /// What this rank has decided (a message accepted or refused) must reach the others although it leaves now.
  void say_last_words() GYRE_REQUIRES(mutex_);

  // messenger_mail.cc: shared memory.

  void open_mail(Deadline deadline) GYRE_REQUIRES(mutex_);
  std::unique_ptr<Mail> mail_of(int rank) GYRE_REQUIRES(mutex_);
  std::span<Mail* const> mails() const { return {mails_.data(), mail_count_.load(std::memory_order_acquire)}; }
  /// Takes all records that have come in.
  void drain_mail() GYRE_REQUIRES(mutex_);
  void drain(Peer& peer) GYRE_REQUIRES(mutex_);
  void take_record(Peer& peer, const MailHead& head, std::span<const std::byte> payload) GYRE_REQUIRES(mutex_);
  /// Writes a record, at once or when there is room. `whole`: the payload is the message of that number.
  void post(Peer& peer, const MailHead& head, std::span<const std::byte> payload, bool whole = false)
      GYRE_REQUIRES(mutex_);
  /// Writes what waits for room.
  void flush(Peer& peer) GYRE_REQUIRES(mutex_);
  bool flush_some(Peer& peer) GYRE_REQUIRES(mutex_);
  /// Sees to it that the peers which were written to look.
  void alert_peers() GYRE_REQUIRES(mutex_);
  void knock(Peer& peer) GYRE_REQUIRES(mutex_);
  /// A waiting thread of this process has something to look at.
  void alert_ourselves() GYRE_REQUIRES(mutex_);

  void follow(std::optional<SteadyClock::time_point> until) GYRE_REQUIRES(mutex_);
  void lead(const Completion<Arrival>& outcome, std::optional<SteadyClock::time_point> until) GYRE_REQUIRES(mutex_);
  void wait_for_mail(std::optional<SteadyClock::time_point> until) GYRE_REQUIRES(mutex_);
  /// When nobody leads any more.
  void hand_over() GYRE_REQUIRES(mutex_);
  /// Says who looks next; false where nobody would see what has come in already.
  bool leave_to_service() GYRE_REQUIRES(mutex_);
  bool may_spin() const;
  /// Spins, then gives way to others; false when nothing has changed meanwhile.
  bool look_for_a_while(std::uint64_t changes_seen) const;
  void sleep_until_changed(std::uint64_t changes_seen, std::optional<SteadyClock::time_point> until);
  bool something_changed(std::uint64_t changes_seen) const;
  bool mail_pending() const;
  void hurry_peers() GYRE_REQUIRES(mutex_);

  /// False for a message that takes long: it is to be put in copies_.
  bool copy_now(Copy& copy) GYRE_REQUIRES(mutex_);
  /// Whether a caller waits here, and one there or soon.
  bool both_wait(const Mail& mail, std::size_t size_bytes) const GYRE_REQUIRES(mutex_);
  /// Sees to it that somebody makes the copy that receive() has found to make, if any.
  void begin_copy() GYRE_REQUIRES(mutex_);
  /// `leads`: this thread is the leader, and takes what comes in meanwhile.
  void run_copy(Copy copy, bool leads = false) GYRE_REQUIRES(mutex_);
  void look_in_between() GYRE_REQUIRES(mutex_);
  void end_copy(Copy copy, bool copied) GYRE_REQUIRES(mutex_);

  Group& group_;
  const std::uint64_t channel_;
  const PointToPoint::Describe describe_;
  std::atomic<bool> note_times_ = false;
  const LocalPath local_;
  net::Notifier wake_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<Peer>> peers_ GYRE_GUARDED_BY(mutex_);  // By rank; grows until close().
  std::set<int> connecting_ GYRE_GUARDED_BY(mutex_);                    // Ranks to which a caller opens a link.
  ConditionVariable connected_;                                         // Changes of connecting_.
  std::map<int, Error> gone_ GYRE_GUARDED_BY(mutex_);  // Ranks from which nothing can come any more, and why.
  int exits_seen_ GYRE_GUARDED_BY(mutex_) = 0;
  std::deque<Receive> receives_ GYRE_GUARDED_BY(mutex_);  // That meet no offer yet; in the order of posting.
  std::uint64_t sent_ GYRE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  bool stopping_ GYRE_GUARDED_BY(mutex_) = false;

  // Shared memory. Set before start(), but for what lies behind the pointers.
  std::unique_ptr<MailSegment> segment_;  // Null where no other rank is reached through it.
  Desk* desk_ = nullptr;                  // Ours.
  std::vector<Mail*> mails_;              // Of all peers on this host, as many as mail_count_ says; see mails().
  std::atomic<std::size_t> mail_count_{0};
  bool spins_ = false;
  const std::uint64_t probe_;  // Known to the others, who find it in our memory.

  std::deque<Copy> copies_ GYRE_GUARDED_BY(mutex_);  // That nobody works on yet.
  std::atomic<bool> copying_is_over_{false};
  std::size_t kept_bytes_ GYRE_GUARDED_BY(mutex_) = 0;  // Of offers' contents.
  bool leading_ GYRE_GUARDED_BY(mutex_) = false;        // A caller looks at the shared memory, and nobody else does.
  int followers_ GYRE_GUARDED_BY(mutex_) = 0;           // Callers who wait meanwhile, on changed_.
  int helpers_ GYRE_GUARDED_BY(mutex_) = 0;             // Both.
  ConditionVariable changed_;
  std::atomic<std::uint64_t> changes_{0};  // Grows with all that a leader might wait for.
  std::optional<Error> broken_
      GYRE_GUARDED_BY(mutex_);                         // Seen by a caller; the service thread fails the group with it.
  std::uint64_t records_ GYRE_GUARDED_BY(mutex_) = 0;  // Taken so far.

  // Of the service thread.
  enum class Service { kAwake, kLooksSoon, kAsleep };
  Service service_ GYRE_GUARDED_BY(mutex_) = Service::kAwake;
  std::uint64_t records_seen_ GYRE_GUARDED_BY(mutex_) = 0;
  int quiet_looks_ GYRE_GUARDED_BY(mutex_) = 0;  // In a row, that found no new records.
  std::vector<pollfd> polled_;
  std::thread thread_;
};

}  // namespace gyre::group::internal
