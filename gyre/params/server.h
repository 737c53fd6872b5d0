#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "gyre/base/log.h"
#include "gyre/group/group.h"
#include "gyre/params/setup.h"

namespace gyre::params {

struct ServerOptions {
  /// After waiting this long for others, a worker is reported by the first server, with what all workers do; 0: never.
  std::chrono::milliseconds stall_warning{60'000};
  std::chrono::milliseconds stall_failure{0};  ///< … and after this long the group fails; 0: never.
  Logger logger = nullptr;                     ///< Of the reports.
};

struct ServerStatistics {
  /// How many gradients of blocks were applied with which staleness, in updates; empty in sync.
  std::map<std::uint64_t, std::uint64_t> staleness;
  std::uint64_t late = 0;  ///< With backup workers: gradients that came too late and were dropped.
};

/// The staleness as a table for people: a line for each, or for ranges of it where there are many. Empty where there is
/// none.
std::string describe_staleness(const std::map<std::uint64_t, std::uint64_t>& staleness);

/// Makes this rank one of the parameter servers of `group`, whose ranks `layout` divides, and leaves the group
/// when all workers have left. What the servers do, the workers say (TrainingSetup); they have to agree. A thread for
/// each worker receives, sums, updates and answers block by block, so that different blocks are worked on at the same
/// time; with a quorum one thread carries out its verdicts. Errors fail the whole group: kMismatch where workers
/// disagree about the setup, the learning rate or their calls, kTimeout after ServerOptions::stall_failure, kProtocol,
/// and the group's own, such as the death of a rank. Where the workers have asked for that
/// (ConsistencyOptions::survives_losses), the death of a worker is none, unless it was the last one or
/// the first worker, which they need (needs_first_worker).
ServerStatistics serve(group::Group& group, const Layout& layout, const ServerOptions& options = {});

}  // namespace gyre::params
