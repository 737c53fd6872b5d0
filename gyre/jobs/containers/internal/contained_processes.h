#pragma once

#include <sys/types.h>

namespace gyre::jobs::containers::internal {

/// Kills the descendants of a process that have another PID namespace than we: the programs that run in containers
/// which it has started itself.
void kill_contained(pid_t ancestor);

}  // namespace gyre::jobs::containers::internal
