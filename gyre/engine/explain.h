#pragma once

#include <chrono>
#include <string>

#include "gyre/engine/statistics.h"
#include "gyre/group/group.h"

// What `gyre explain` asks of a rank: what the machine can do, and one report of how the exchange went.

namespace gyre::engine {

/// What the ranks of a job can do together, measured before they start.
struct MachineRates {
  std::chrono::nanoseconds latency{0};  ///< Of an allreduce of 4 bytes over all ranks.
  double memory_bytes_per_second = 0;   ///< That the ranks of one host copy, all at the same time, in all.
  /// That leave a host in an allreduce over links, per second and in one direction; 0 on one host.
  double link_bytes_per_second = 0;
  std::chrono::nanoseconds took{0};  ///< The measuring.
};

/// Measures for less than 200 ms, unless a link is slower than 5 Mbit/s or the machine is busy with something else.
/// Collective; equal on all ranks, but for `took`. Throws what collectives throw.
MachineRates measure_machine(group::Group& group);

/// One JSON object: the job, `rates`, and everything of `statistics`; docs/guide/explain.md has the keys.
std::string exchange_report(const group::Topology& topology, const MachineRates& rates,
                            const EngineStatistics& statistics);

}  // namespace gyre::engine
