#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gyre/launch/console.h"

namespace gyre::launch {

/// What tells one run from another, as keys and values: command, ranks, host, time, version; and where we are in a git
/// repository, its commit and what differs from it. `ranks`: of the job. Asks git for a few seconds at most.
std::vector<std::pair<std::string, std::string>> run_facts(const LaunchOptions& options, int ranks);

}  // namespace gyre::launch
