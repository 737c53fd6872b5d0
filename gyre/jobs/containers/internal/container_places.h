#pragma once

#include <sys/types.h>

#include <vector>

#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

/// Shows folders of ours in a container that runs, under their targets, and gives what its runtime has made for it
/// alone (its root folder, /etc/hosts and the like) to `root`. A daemon sees the mounts of its own mount namespace
/// alone, not ours. `process`: the container's first one. Error(kIo), Error(kUnsupported).
void show_places(pid_t process, const std::vector<BindMount>& places, const UserId& root);

}  // namespace gyre::jobs::containers::internal
