#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace gyre::jobs {

/// What /proc/PID/stat says of a process, as far as we need it; see proc(5).
struct ProcessStat {
  std::uint64_t flags = 0;         ///< The kernel's PF_…
  std::uint64_t memory_bytes = 0;  ///< Virtual; 0 for a thread of the kernel's and for a process that has ended.
  /// Addresses in the process; wrong until exec has laid them out, and for a process that we may not look into.
  std::uint64_t code_start = 0;  ///< Still 0 then.
  std::uint64_t arguments_start = 0;
  std::uint64_t arguments_end = 0;
  std::uint64_t environment_start = 0;
  std::uint64_t environment_end = 0;
};

/// Nothing when there is no such process, or no /proc. Thread-safe.
std::optional<ProcessStat> read_process_stat(pid_t pid);

}  // namespace gyre::jobs
