#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/group/internal/group_state.h"
#include "gyre/group/topology.h"
#include "gyre/net/handshake.h"
#include "gyre/net/segment.h"

namespace gyre::group {

/// One rank's part in sharing a segment among `ranks` (ascending, of its host): the lowest creates it and hands its
/// descriptor to each of the others, which compare the size, map it and say so; then the lowest tells all that all
/// have. `hello`: how this rank introduces itself.
std::shared_ptr<net::Segment> exchange_segment(const Topology& topology, const std::vector<int>& ranks,
                                               const net::JobKey& key, const net::Hello& hello, std::size_t size_bytes,
                                               GroupState& state, Deadline deadline);

/// One rank's part in handing descriptors around among `ranks` (ascending, of its host); see
/// Group::exchange_descriptors. All go by way of the lowest rank, so that n ranks need n - 1 connections, which end
/// with the exchange.
std::vector<UniqueFd> exchange_descriptors(const Topology& topology, const std::vector<int>& ranks,
                                           const net::JobKey& key, const net::Hello& hello, int own, GroupState& state,
                                           Deadline deadline);

}  // namespace gyre::group
