#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::node {

/// What a program said before it let go of its stdout and stderr, or ended.
struct Words {
  std::string out;
  std::string error;  ///< Without the line's end.
};

/// Starts a program that detaches itself (`gyre launch`, `gyre agent`) in a session of its own, as nobody's child: it
/// outlives us, and need not be reaped. It has `environment` and `descriptors`, and nothing else of ours. Returns when
/// it has written a line to stdout, or closed both. Error(kTimeout) when that takes longer than a minute; SpawnError.
Words start_detached(const std::vector<std::string>& command, const Variables& environment,
                     const std::vector<int>& descriptors = {});

}  // namespace gyre::jobs::node
