#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gyre/base/clock.h"
#include "gyre/group/internal/group_state.h"
#include "gyre/net/handshake.h"
#include "gyre/net/stream.h"

namespace gyre::group {

// Blocking exchange with one peer that ends early, with the abort's reason, when the group fails.

void wait_for(int fd, short events, GroupState& state, Deadline deadline, std::string_view what);
void read_exactly(net::Stream& stream, std::span<std::byte> into, GroupState& state, Deadline deadline);
void write_exactly(net::Stream& stream, std::span<const std::byte> from, GroupState& state, Deadline deadline);

/// Connects to `peer` and proves the key: the connector's side of a link, which is encrypted where `hello` says so and
/// it leaves this host, or of a segment's exchange, which must not leave it.
LinkConnection connect_to_peer(const Topology& topology, int peer, const net::JobKey& key, const net::Hello& hello,
                               GroupState& state, Deadline deadline);

/// A stream over a copy of `socket`, for as long as one exchange needs it.
std::unique_ptr<net::Stream> borrow_as_stream(const UniqueFd& socket, std::string peer);

}  // namespace gyre::group
