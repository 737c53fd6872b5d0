#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gyre/group/lane.h"

namespace gyre::collectives {

/// How an allreduce travels.
enum class Algorithm {
  kAlone,              ///< One rank: only the scale is applied.
  kMailbox,            ///< One host, small: every rank reduces all contributions privately; one arrival.
  kSharedPipeline,     ///< One host, ordinary buffer: pieces pass through shared memory, each rank reduces its slice.
  kSharedArena,        ///< One host, buffers already shared: each rank reduces its slice in place; two arrivals.
  kRecursiveDoubling,  ///< Over links, small: log2(n) exchanges of the whole buffer.
  kRing,               ///< Over links, large: 2(n-1) steps, 2(n-1)/n of the buffer sent per rank.
  kHalving,        ///< Over links of many ranks, between the two: as few steps as doubling, half of a buffer at most.
  kHostsDoubling,  ///< Several ranks on some host, small: each host sums, one rank of each doubles.
  kHostsRing,      ///< Several ranks on some host, large: each host sums, a ring per slice joins the hosts.
  kHostsHalving,   ///< Many hosts, between the two: each host sums, each slice is halved and doubled.
};

/// Where the ranks are, as far as the choice depends on it. Ranks that share no memory count as hosts of their own.
struct Placement {
  int size = 1;
  int hosts = 1;
  int fewest_on_a_host = 1;

  bool one_host() const { return hosts == 1; }
  /// No memory is shared at all.
  bool all_apart() const { return hosts == size; }
};

/// Equal on all ranks of the lane.
Placement placement_of(const group::Lane& lane);
/// That of a lane with shared memory.
Placement placement_of(const group::Topology& topology);

struct Choice {
  Algorithm algorithm;
  std::string reason;  ///< One line for the log and `gyre explain`.
};

/// Why this algorithm was chosen for this number of bytes, in one line for the log and `gyre explain`.
std::string reason_for(Algorithm algorithm, std::size_t size_bytes, bool in_arena, const Placement& placement);

/// The one place that decides; between hosts by choose_link_schedule(). Pure: depends on its arguments only, so that
/// all ranks decide alike.
Choice choose_allreduce(std::size_t size_bytes, bool in_arena, const Placement& placement);

/// The same decision without its reason, for the path of every collective: wording it takes longer than a small
/// allreduce.
Algorithm allreduce_algorithm(std::size_t size_bytes, bool in_arena, const Placement& placement);

std::string_view algorithm_name(Algorithm algorithm);

/// The pieces in which a buffer moves, for `gyre explain`: what passes through shared memory, is reduced by one rank or
/// travels in one frame at a time.
std::size_t piece_bytes(Algorithm algorithm, std::size_t size_bytes, const Placement& placement);

}  // namespace gyre::collectives
