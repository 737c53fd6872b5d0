#pragma once

#include <cstdint>

namespace gyre::engine::internal {

// Channels of a group's links and segments, each used once.
constexpr std::uint64_t kNegotiationChannel = 1;
constexpr std::uint64_t kOpenLaneChannel = 2;
constexpr std::uint64_t kBoardChannel = 3;
constexpr std::uint64_t kBoardMemoryChannel = 4;
constexpr std::uint64_t kPointToPointChannel = 8;
constexpr std::uint64_t kClockChannel = 14;
constexpr std::uint64_t kExplainChannel = 15;
constexpr std::uint64_t kFirstPlanChannel = 16;  ///< Rank 0's plan p, from 0, has the channel 16 + p.

}  // namespace gyre::engine::internal
