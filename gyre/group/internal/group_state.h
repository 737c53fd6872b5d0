#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/abort_signal.h"
#include "gyre/group/exited_ranks.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"
#include "gyre/group/topology.h"
#include "gyre/net/psk_tls.h"

namespace gyre::group {

/// Which connection between two ranks.
struct LinkKey {
  int rank = 0;  ///< Of the two the one that connects.
  Purpose purpose = Purpose::kLink;
  std::uint64_t channel = 0;

  friend auto operator<=>(const LinkKey&, const LinkKey&) = default;
};

/// An authenticated connection; with a session whose handshake is done where it is encrypted.
struct LinkConnection {
  UniqueFd socket;
  std::shared_ptr<net::TlsSession> tls{};
};

/// What a rank's service thread and the threads that use its group share. Thread-safe.
class GroupState {
 public:
  explicit GroupState(int size) : exited_(size), subgroup_exits_(size) {}

  AbortSignal& abort_signal() { return abort_signal_; }
  void fail(const Error& reason) GYRE_EXCLUDES(mutex_);

  void note(const Exit& exit) GYRE_EXCLUDES(mutex_);
  void mark_left(int rank, bool lost = false) GYRE_EXCLUDES(mutex_);
  bool has_left(int rank) const { return exited_.has_left(rank); }
  bool was_lost(int rank) const { return exited_.was_lost(rank); }
  int exit_count() const { return exited_.count(); }

  void mark_left_subgroup(int rank, std::uint64_t subgroup) GYRE_EXCLUDES(mutex_);
  std::shared_ptr<const ExitedRanks> subgroup_exits(std::uint64_t subgroup) GYRE_EXCLUDES(mutex_);

  /// Keeps an authenticated connection until take_link(); a second one with the same key replaces the first.
  /// Error(kResourceExhausted) when too many wait.
  void offer_link(const LinkKey& key, LinkConnection connection) GYRE_EXCLUDES(mutex_);
  /// Waits for offer_link(). Error(kTimeout | kPeerLeft), or the abort's reason.
  LinkConnection take_link(const LinkKey& key, const Topology& topology, Deadline deadline) GYRE_EXCLUDES(mutex_);

  using Sink = std::function<void(int rank, LinkConnection connection)>;
  /// Gets the direct links of this channel, in place of take_link(); see Group::accept().
  void accept(std::uint64_t channel, Sink sink) GYRE_EXCLUDES(mutex_);

  /// See Group::wait_for_cause.
  void wait_for_cause(int peer, std::uint64_t subgroup, Deadline deadline) GYRE_EXCLUDES(mutex_);

  /// The membership connection is over: rank 0 has confirmed our leave, or is gone.
  void finish_farewell() GYRE_EXCLUDES(mutex_);
  void wait_for_farewell(Deadline deadline) GYRE_EXCLUDES(mutex_);

 private:
  void keep_offered(const LinkKey& key, LinkConnection connection) GYRE_REQUIRES(mutex_);
  /// From the group, or from the subgroup (0: none).
  bool is_gone(int rank, std::uint64_t subgroup) GYRE_REQUIRES(mutex_);
  void wait(Deadline deadline) GYRE_REQUIRES(mutex_);

  AbortSignal abort_signal_;
  ExitedRanks exited_;
  Mutex mutex_;
  SubgroupExits subgroup_exits_ GYRE_GUARDED_BY(mutex_);
  ConditionVariable changed_;
  std::map<LinkKey, LinkConnection> offered_links_ GYRE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<const Sink>> sinks_ GYRE_GUARDED_BY(mutex_);  // By channel.
  bool farewell_finished_ GYRE_GUARDED_BY(mutex_) = false;
};

/// What those are told who need a rank that has left, or was lost.
Error peer_left(const Topology& topology, int peer, bool lost);

}  // namespace gyre::group
