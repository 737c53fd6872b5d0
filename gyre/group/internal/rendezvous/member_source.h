#pragma once

#include <optional>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"
#include "gyre/group/job.h"
#include "gyre/net/stream.h"

namespace gyre::group {

/// What rank 0 has said between Membership and Members.
struct EarlyNews {
  std::vector<Exit> exits;
  std::optional<Error> failure;  ///< The group has failed.
};

/// The payload of the Members message, which `membership.digest` describes: from the rank that rank 0 has named as a
/// source or, where there is none, or it cannot be reached, from rank 0 itself, over `rank_zero`. Waits for a source
/// only as long as rank 0 does not say that it is gone, and at most kLongestSourceWait. Nothing when the group has
/// failed, which `news` then says. Errors: those of the connection to rank 0, kProtocol.
std::optional<Bytes> fetch_members(net::Stream& rank_zero, const Job& job, const Member& own,
                                   const Membership& membership, Deadline deadline, EarlyNews& news);

/// A source has the members itself after a few hops, which take milliseconds each.
constexpr std::chrono::milliseconds kLongestSourceWait{10'000};

}  // namespace gyre::group
