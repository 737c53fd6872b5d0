#include "gyre/jobs/internal/dying.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::jobs {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 16;

std::uint64_t number_at(std::string_view text, std::size_t at, int base) {
  std::uint64_t number = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), number, base);
  return number;
}

/// Field 9 of /proc/PID/stat, the kernel's flags of the process.
bool is_exiting(std::string_view stat) {
  constexpr std::uint64_t kExiting = 4;  // PF_EXITING in the kernel's sched.h.
  constexpr int kSpacesBeforeFlags = 7;
  std::size_t at = stat.rfind(')');  // The program's name may contain anything.
  for (int spaces = 0; spaces < kSpacesBeforeFlags && at != std::string_view::npos; ++spaces)
    at = stat.find(' ', at + 1);
  return at != std::string_view::npos && (number_at(stat, at + 1, 10) & kExiting) != 0;
}

/// Signals that wait for the process, as /proc/PID/status shows them.
bool kill_waits_in(std::string_view status, std::string_view name) {
  constexpr std::uint64_t kKill = std::uint64_t{1} << (SIGKILL - 1);
  const std::size_t at = status.find(name);
  return at != std::string_view::npos && (number_at(status, at + name.size(), 16) & kKill) != 0;
}

}  // namespace

bool is_dying(pid_t pid) {
  try {
    const Bytes stat = read_file(fmt::format("/proc/{}/stat", pid), kMostBytes);
    if (is_exiting(as_text(stat))) return true;
    const Bytes status = read_file(fmt::format("/proc/{}/status", pid), kMostBytes);
    return kill_waits_in(as_text(status), "\nSigPnd:\t") || kill_waits_in(as_text(status), "\nShdPnd:\t");
  } catch (const Error&) {
    return false;  // Without /proc nobody is known to be dying.
  }
}

}  // namespace gyre::jobs
