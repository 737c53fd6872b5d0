#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/log.h"
#include "gyre/group/abort_signal.h"
#include "gyre/group/exited_ranks.h"
#include "gyre/group/job.h"
#include "gyre/group/topology.h"
#include "gyre/net/segment.h"
#include "gyre/net/stream.h"

namespace gyre::group {

/// An ordered set of ranks that can exchange bytes. Two back ends: processes that met at a rendezvous
/// (join_group), and threads of one process (InProcessHub, for tests and for playing several ranks); and views of some
/// ranks of such a group (make_subgroup).
/// All methods are thread-safe.
///
/// Destroying a group leaves it; while an exception unwinds the owner it aborts it instead, because then this rank's
/// work was not done.
class Group {
 public:
  virtual ~Group() = default;

  int rank() const { return topology().rank(); }
  int size() const { return topology().size(); }
  virtual const Topology& topology() const = 0;

  /// Failed membership: a rank died, or somebody called abort(). Once triggered every wait of this group throws its
  /// reason.
  virtual AbortSignal& abort_signal() = 0;

  /// A new authenticated stream to `peer` for `channel`. Both ranks call it, once per channel, in any order between
  /// peers and channels: the lower rank waits for the higher one, who returns as soon as the connection stands; so
  /// no cycle of waits is possible, whatever order the ranks choose (a ring: each its next, then its previous).
  /// Errors: kTimeout, kPeerLost, kPeerLeft, kAuthentication, or the group's abort reason.
  virtual std::unique_ptr<net::Stream> open_link(int peer, std::uint64_t channel, Deadline deadline) = 0;

  /// A new authenticated stream to `peer` for `channel` that this rank alone decides on: the peer need not call
  /// anything, and gets its end where it has said accept(). Either rank may call it; each gets a stream of its own
  /// then. Returns as soon as the connection stands. Errors: as open_link().
  virtual std::unique_ptr<net::Stream> connect(int peer, std::uint64_t channel, Deadline deadline) = 0;

  using LinkSink = std::function<void(int peer, std::unique_ptr<net::Stream> link)>;
  /// `sink` gets this rank's ends of what others connect() for `channel`: what has come already, and what comes. It is
  /// called on threads of the group or of other ranks, must be quick, and must not call the group. Empty: what has come
  /// is closed, and so is what comes.
  virtual void accept(std::uint64_t channel, LinkSink sink) = 0;

  /// Memory shared with the ranks of this host (and only those). Every local rank calls it with the same
  /// channel and size; returns when all have mapped it.
  virtual std::shared_ptr<net::Segment> share_segment(std::uint64_t channel, std::size_t size_bytes,
                                                      Deadline deadline) = 0;

  /// share_segment() for `ranks` alone, which are ascending and of one host, this rank among them.
  virtual std::shared_ptr<net::Segment> share_segment_among(const std::vector<int>& ranks, std::uint64_t channel,
                                                            std::size_t size_bytes, Deadline deadline) = 0;

  /// Hands `own`, which is open, to the other ranks of this host, and returns their descriptors by local rank. They
  /// travel over authenticated unix sockets, so they are the same open files here whatever namespaces the processes
  /// have; what the files are is for the caller to check. Its own place is empty, and so are those for which this
  /// process has no room (and, if the lowest rank has none, all of them). Every local rank calls it with the same
  /// channel, which no other call uses at the same time.
  virtual std::vector<UniqueFd> exchange_descriptors(std::uint64_t channel, int own, Deadline deadline) = 0;

  /// exchange_descriptors() for `ranks` alone, in their order; as share_segment_among().
  virtual std::vector<UniqueFd> exchange_descriptors_among(const std::vector<int>& ranks, std::uint64_t channel,
                                                           int own, Deadline deadline) = 0;

  /// Tells every rank that the group has failed. `reason` should name this rank and what went wrong.
  virtual void abort(const Error& reason) = 0;

  /// Ends this rank's membership in good order; its death is no failure from here on. Idempotent.
  /// Ranks that still wait for this one in a collective fail with kPeerLeft.
  /// Returns once the others have been told. Rank 0, who hosts the rendezvous, stays until all others have left or
  /// are gone, at most GroupOptions::longest_farewell.
  virtual void leave() = 0;

  /// True once `rank` has left in good order. Everything it wrote to shared memory or links before is visible then.
  virtual bool has_left(int rank) const = 0;
  /// True where has_left() is, but the rank died: see tolerate_losses().
  virtual bool was_lost(int rank) const = 0;
  /// From now on the death of one of these ranks, or its abort() with a reason that is_tolerated(), fails nobody else:
  /// it has left, and was_lost(). Called by rank 0, which cannot be one of them, for the whole group.
  virtual void tolerate_losses(const std::vector<int>& ranks) = 0;
  /// How many ranks have left: one load, for loops that wait in shared memory. Sleepers on registered futexes are
  /// woken when it changes.
  virtual int exit_count() const = 0;

  // What a view of some of the ranks (subgroup.h) is made of; nobody else calls these. `peer` is a number of this
  // group, and `subgroup` is the number of the view.

  /// Tells every rank that this one has left the subgroup.
  virtual void leave_subgroup(std::uint64_t subgroup) = 0;
  virtual std::shared_ptr<const ExitedRanks> subgroup_exits(std::uint64_t subgroup) = 0;
  /// Blocks until the group has failed, `peer` has left it or the subgroup (0: none), or the deadline passed.
  virtual void wait_for_cause(int peer, std::uint64_t subgroup, Deadline deadline) = 0;

  /// What a failure on the connection to `peer` means for the group: waits (at most kLongestCauseWait) until the
  /// group knows, and returns its abort reason, or kPeerLeft, or else `seen` itself. So that all ranks report the
  /// same cause, however they noticed.
  Error cause_of_loss(int peer, const Error& seen);
  static constexpr std::chrono::milliseconds kLongestCauseWait{1000};
};

struct GroupOptions {
  std::chrono::milliseconds join_timeout{60'000};  ///< All ranks must have appeared by then.
  std::chrono::milliseconds handshake_timeout{10'000};
  /// How long rank 0, once it leaves, serves the ranks that have not left yet. They fail with kPeerLeft afterwards.
  std::chrono::milliseconds longest_farewell{60'000};
  std::string host_id;  ///< Empty: this_host_id(). Tests play several hosts by setting it.
};

/// Meets the other processes of the job at its rendezvous (rank 0 hosts it) and returns when all are there.
/// Errors: kTimeout names the ranks that did not appear; kAuthentication; kMismatch (two ranks claim one
/// number, or different sizes); kInvalidArgument.
std::unique_ptr<Group> join_group(const Job& job, const GroupOptions& options, const Logger& logger);

}  // namespace gyre::group
