#pragma once

#include <sys/types.h>

namespace gyre::launch {

/// Whether a child of ours is on its way out: killed but not gone yet, or in the middle of its exit, or ended and not
/// reaped. One that has ended so far that /proc does not have it any more is not.
bool is_dying(pid_t pid);

}  // namespace gyre::launch
