#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// What `gyre launch` runs, as JSON says it; docs/guide/launch.md has the fields.
struct LaunchSpec {
  RankSetOptions ranks;
  /// By rank: the files that get its stdout and its stderr, appended to; empty: the records of `gyre launch` do.
  struct Files {
    std::string stdout_path;
    std::string stderr_path;
  };
  std::vector<Files> files;
  /// Gets what the ranks log and what becomes of them, as LaunchOptions::metrics_for_service has it; a path, or empty.
  std::string metrics;
  std::uint64_t metrics_bytes = 0;  ///< How long that file may become; 0: as metrics::FileWriter has it.
  /// What that file adds to the ranks' numbers: of processes that are no ranks of one job, for those of other nodes.
  int metrics_first = 0;
  std::string socket;                     ///< A path; empty: to be given otherwise.
  std::chrono::milliseconds grace{5000};  ///< From a stop to SIGKILL.
  std::size_t keep_bytes = 64U << 20U;    ///< Of records, for readers that come later; the oldest go first.
  std::chrono::seconds linger{3600};      ///< How long it waits for a reader after the last rank has ended.
};

constexpr std::size_t kMostSpecBytes = std::size_t{16} << 20;

/// Reads untrusted text: at most kMostSpecBytes, at most kMostRanksPerHost ranks, and no more than 256 MB once ranks
/// with a count are written out. `environment`: what the ranks get beneath their own. Error(kInvalidArgument) names the
/// field that is wrong, missing, or unknown. Pure.
LaunchSpec parse_launch_spec(std::string_view json, const std::vector<std::string>& environment);

}  // namespace gyre::launch
