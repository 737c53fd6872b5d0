#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gyre/group/topology.h"

namespace gyre::collectives {

/// How an allreduce travels.
enum class Algorithm {
  kAlone,              ///< One rank: only the scale is applied.
  kMailbox,            ///< One host, small: every rank reduces all contributions privately; one arrival.
  kSharedPipeline,     ///< One host, ordinary buffer: pieces pass through shared memory, each rank reduces its slice.
  kSharedArena,        ///< One host, buffers already shared: each rank reduces its slice in place; two arrivals.
  kRecursiveDoubling,  ///< Over links, small: log2(n) exchanges of the whole buffer.
  kRing,               ///< Over links, large: 2(n-1) steps, 2(n-1)/n of the buffer sent per rank.
};

struct Choice {
  Algorithm algorithm;
  std::string reason;  ///< One line for the log and `gyre explain`.
};

/// The one place that decides. Pure: depends on its arguments only, so that all ranks decide alike.
Choice choose_allreduce(std::size_t size_bytes, bool in_arena, int size, int host_count);

/// The same decision without its reason, for the path of every collective: wording it takes longer than a small
/// allreduce.
Algorithm allreduce_algorithm(std::size_t size_bytes, bool in_arena, int size, int host_count);

std::string_view algorithm_name(Algorithm algorithm);

}  // namespace gyre::collectives
