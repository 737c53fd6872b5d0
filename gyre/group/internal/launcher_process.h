#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gyre::group {

/// Names the process of this host that started a rank: the nearest ancestor of `process` whose environment lacks one of
/// the `entries` ("PMI_RANK=3"), which the launcher gave that rank alone, or cannot be read (it belongs to another
/// user). It is the same for all ranks that one launcher started on this host, also when a shell or another program
/// stands between, and differs for any two launchers. Empty where /proc does not tell.
std::string launcher_process(pid_t process, const std::vector<std::string>& entries);

}  // namespace gyre::group
