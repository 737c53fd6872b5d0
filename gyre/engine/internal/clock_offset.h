#pragma once

#include <chrono>
#include <optional>

#include "gyre/group/group.h"

namespace gyre::engine::internal {

/// How much the wall clock of rank 0's host is ahead of this one's: of some messages there and back, the quickest says
/// it best (as NTP does), and the error is at most half of its time. Measured by the lowest rank of each other host;
/// nothing on other ranks, and where rank 0 does not answer within `longest`. Collective.
std::optional<std::chrono::microseconds> clock_offset(group::Group& group, std::chrono::milliseconds longest);

}  // namespace gyre::engine::internal
