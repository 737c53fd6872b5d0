#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"

// Control groups of Linux, in both versions: a tree for each controller, or one tree for all of them.
namespace gyre {

enum class CgroupController { kCpu, kMemory };

/// The folders of the cgroups of that controller that a process is in, as this process sees them: its own first, then
/// those around it. Empty where the machine shows none.
std::vector<std::filesystem::path> cgroups_of(pid_t process, CgroupController controller);

/// The narrowest limit of these cgroups, in bytes; nothing where none has one.
std::optional<std::uint64_t> memory_limit(const std::vector<std::filesystem::path>& cgroups);
/// The same in cores, rounded up, at least 1.
std::optional<int> core_limit(const std::vector<std::filesystem::path>& cgroups);
/// How many processes of the cgroup the kernel has killed because of a memory limit; 0 where it does not say.
std::int64_t memory_kills(const std::filesystem::path& cgroup);

/// Makes a cgroup `name` with a limit (bytes, or cores) in the innermost cgroup of this process that can have one, or
/// sets the limit of the one that is there. What exceeds a memory limit does not go to swap. Error(kUnsupported): this
/// process may make none, or the machine has no such controller.
std::filesystem::path make_cgroup(CgroupController controller, const std::string& name, std::uint64_t limit);
/// Kills all that is in it and removes it. Error(kTimeout) where it stays.
void remove_cgroup(const std::filesystem::path& cgroup, Deadline deadline);

}  // namespace gyre
