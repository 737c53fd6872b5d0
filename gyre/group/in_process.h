#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gyre/group/group.h"

namespace gyre::group {

/// Makes `size` groups, one per rank, for threads of this process. `host_ids` (one per rank) lets tests
/// play several hosts; empty means that all share one.
std::vector<std::unique_ptr<Group>> make_in_process_groups(int size, std::vector<std::string> host_ids = {});

/// Runs `body` on `size` threads, each with its own group, and waits for all. The first exception of a
/// thread aborts the groups of all and is thrown to the caller with its rank in front, unless the group tolerates the
/// loss of that rank.
void run_in_process(int size, const std::function<void(Group&)>& body, std::vector<std::string> host_ids = {});

}  // namespace gyre::group
