#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/log.h"
#include "gyre/group/abort_signal.h"
#include "gyre/group/job.h"
#include "gyre/group/topology.h"
#include "gyre/net/segment.h"
#include "gyre/net/stream.h"

namespace gyre::group {

/// An ordered set of ranks that can exchange bytes. Two back ends: processes that met at a rendezvous
/// (join_group), and threads of one process (InProcessHub, for tests and for playing several ranks).
/// All methods are thread-safe.
class Group {
 public:
  virtual ~Group() = default;

  int rank() const { return topology().rank(); }
  int size() const { return topology().size(); }
  virtual const Topology& topology() const = 0;

  /// Failed membership: a rank died, or somebody called abort(). Once triggered every wait of this group throws its
  /// reason.
  virtual AbortSignal& abort_signal() = 0;

  /// A new authenticated stream to `peer` for `channel`. Both ranks call it, once per channel, in any
  /// order between channels; it returns when both have, or throws (kTimeout, kPeerLost, kAborted …).
  virtual std::unique_ptr<net::Stream> open_link(int peer, std::uint64_t channel, Deadline deadline) = 0;

  /// Memory shared with the ranks of this host (and only those). Every local rank calls it with the same
  /// channel and size; returns when all have mapped it.
  virtual std::shared_ptr<net::Segment> share_segment(std::uint64_t channel, std::size_t size_bytes,
                                                      Deadline deadline) = 0;

  /// Tells every rank that the group has failed. `reason` should name this rank and what went wrong.
  virtual void abort(const Error& reason) = 0;

  /// Ends this rank's membership in good order; its death is no failure from here on. Idempotent.
  /// Ranks that still wait for this one in a collective fail with kPeerLeft.
  virtual void leave() = 0;
};

struct GroupOptions {
  std::chrono::milliseconds join_timeout{60'000};  ///< All ranks must have appeared by then.
  std::chrono::milliseconds handshake_timeout{10'000};
  std::string host_id;  ///< Empty: this_host_id(). Tests play several hosts by setting it.
};

/// Meets the other processes of the job at its rendezvous (rank 0 hosts it) and returns when all are there.
/// Errors: kTimeout names the ranks that did not appear; kAuthentication; kMismatch (two ranks claim one
/// number, or different sizes); kInvalidArgument.
std::unique_ptr<Group> join_group(const Job& job, const GroupOptions& options, const Logger& logger);

}  // namespace gyre::group
