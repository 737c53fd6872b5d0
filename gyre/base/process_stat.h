#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyre {

/// What /proc/PID/stat says of a process, as far as we need it; see proc(5).
struct ProcessStat {
  char state = '\0';               ///< 'R', 'S', 'T' (stopped), 't' (stopped by its tracer), 'Z', …
  pid_t parent = 0;                ///< 0 for the first process of a PID namespace.
  std::uint64_t started = 0;       ///< In clock ticks since the machine started; tells apart two uses of one number.
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

/// Whether /proc shows processes by the numbers that they have here. It does not where it was mounted for another PID
/// namespace (`unshare --pid` without --mount-proc): there /proc/PID is a stranger. Anybody who reads /proc/PID asks
/// first.
bool proc_has_our_numbers();

/// Two services with the same view see the same processes: the boot of the machine, and the PID namespace. Empty where
/// /proc shows other numbers than ours. Error(kIo).
std::string view_of_processes();

/// The most of /proc/PID/environ that is ever looked at.
constexpr std::uint64_t kLargestEnvironmentBytes = std::uint64_t{8} << 20;

/// Whether `entries`, in the form of /proc/PID/environ, have all of `entry` ("NAME=VALUE") as one of them.
bool holds_entry(std::string_view entries, std::string_view entry);

}  // namespace gyre
