#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gyre::launch {

/// The name of this machine.
std::string host_name();

/// How many processes the kernel has killed for want of memory since it started; nothing when it does not say.
std::optional<std::int64_t> out_of_memory_kills();

/// Raises this process's limit of open files when it is below `needed`. Error(kResourceExhausted) says what to do when
/// the hard limit is too low.
void ensure_open_files(std::uint64_t needed);

}  // namespace gyre::launch
