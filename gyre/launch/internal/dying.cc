#include "gyre/launch/internal/dying.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process_stat.h"

namespace gyre::launch {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 16;

constexpr std::uint64_t kExiting = 4;  // PF_EXITING in the kernel's sched.h.

/// Signals that wait for the process, as /proc/PID/status shows them.
bool kill_waits_in(std::string_view status, std::string_view name) {
  constexpr std::uint64_t kKill = std::uint64_t{1} << (SIGKILL - 1);
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return false;
  std::uint64_t signals = 0;
  std::from_chars(status.data() + at + name.size(), status.data() + status.size(), signals, 16);
  return (signals & kKill) != 0;
}

}  // namespace

bool is_dying(pid_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  if (!stat) return false;  // Without /proc nobody is known to be dying.
  if ((stat->flags & kExiting) != 0) return true;
  try {
    const Bytes status = read_file(fmt::format("/proc/{}/status", pid), kMostBytes);
    return kill_waits_in(as_text(status), "\nSigPnd:\t") || kill_waits_in(as_text(status), "\nShdPnd:\t");
  } catch (const Error&) {
    return false;  // It has ended meanwhile.
  }
}

}  // namespace gyre::launch
