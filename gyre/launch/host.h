#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gyre/base/file.h"

namespace gyre::launch {

constexpr int kMostRanksPerHost = 4096;

/// The name of this machine.
std::string host_name();

/// How many processes the kernel has killed for want of memory since it started; nothing when it does not say.
std::optional<std::int64_t> out_of_memory_kills();

/// The same for processes of the cgroup that this process is in, and the memory limit of that cgroup and those around
/// it.
std::int64_t kills_in_own_cgroup();
std::optional<std::uint64_t> own_memory_limit();

/// Raises this process's limit of open files, where it is lower, to what `ranks` need. Error(kResourceExhausted) says
/// what to do when the hard limit is too low.
void ensure_open_files(int ranks);

/// A port of this host that is free now, kept from others (but not from a process that asks for it by number) while the
/// descriptor is open.
struct ReservedPort {
  int port = 0;
  UniqueFd socket;
};
ReservedPort reserve_port();

}  // namespace gyre::launch
