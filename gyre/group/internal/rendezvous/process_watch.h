#pragma once

#include "gyre/base/file.h"
#include "gyre/group/topology.h"

namespace gyre::group {

/// A descriptor that becomes readable when `other`'s process ends; empty when it cannot be watched from here (another
/// host or process namespace, or this very process). A broken connection tells of a death too, but not while a child
/// that the process forked (a data loader's worker, say) still holds a copy of the socket.
UniqueFd watch_process(const Member& self, const Member& other);

}  // namespace gyre::group
