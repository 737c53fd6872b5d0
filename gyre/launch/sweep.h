#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"

namespace gyre::launch {

/// What the process is called that outlives a killed launcher to kill its ranks.
inline constexpr char kGuardianName[] = "job-guardian";

/// Kills (SIGKILL) every process of this user whose environment has the entry `marker` ("NAME=VALUE"), and waits until
/// they are gone or the deadline has passed. Finds what left its process group or session (setsid, daemons) and was
/// adopted by others, and what is inside exec while it looks. Leaves those alone that have one of the entries `spared`.
/// Returns the pids of what it killed. Never kills the caller.
std::vector<pid_t> kill_marked_processes(std::string_view marker, Deadline deadline,
                                         std::span<const std::string> spared = {});

}  // namespace gyre::launch
