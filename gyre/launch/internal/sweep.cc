#include "gyre/launch/sweep.h"

#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"

namespace gyre::launch {

namespace {

enum class Marking : std::uint8_t {
  kAbsent,
  kPresent,
  kUnknown,  ///< The process is inside exec, and its environment not yet where it can be read.
};

/// What a process's environment must and must not have.
struct Marks {
  std::string_view marker;
  std::span<const std::string> spared;

  bool fit(std::string_view environment) const {
    return holds_entry(environment, marker) &&
           std::ranges::none_of(spared, [&](const std::string& entry) { return holds_entry(environment, entry); });
  }
};

Marking marking_of(pid_t pid, const Marks& marks) {
  std::size_t bytes_read = 0;
  try {
    const Bytes entries = read_file(fmt::format("/proc/{}/environ", pid), kLargestEnvironmentBytes);
    if (marks.fit(as_text(entries))) return Marking::kPresent;
    bytes_read = entries.size();
  } catch (const Error&) {
    return Marking::kAbsent;  // Somebody else's process, or one that has just ended: not ours to kill.
  }
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  if (!stat || stat->memory_bytes == 0) return Marking::kAbsent;
  // In exec there is nothing to read, and what is being read of the program before it breaks off.
  const bool read_whole = stat->code_start != 0 && bytes_read == stat->environment_end - stat->environment_start;
  return read_whole ? Marking::kAbsent : Marking::kUnknown;
}

struct Found {
  pid_t pid;
  UniqueFd pidfd;
};

struct Findings {
  std::vector<Found> marked;
  std::vector<Found> in_exec;  ///< Could not be judged.
};

/// The descriptor is taken before the environment is read: what is killed is what was looked at.
Findings look_at_all(const Marks& marks) {
  Findings found;
  if (!proc_has_our_numbers()) return found;  // The numbers there are strangers' here.
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return found;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    UniqueFd pidfd = open_pidfd(pid);
    if (!pidfd) continue;
    const Marking marking = marking_of(pid, marks);
    if (marking == Marking::kAbsent) continue;
    auto& list = marking == Marking::kPresent ? found.marked : found.in_exec;
    list.push_back({pid, std::move(pidfd)});
  }
  return found;
}

/// Whether one of them turns out to be marked, as soon as it is through with exec. A program on a slow disk may take
/// some time; one that never gets through must not hold up everybody.
bool any_comes_out_marked(std::vector<Found> in_exec, const Marks& marks) {
  constexpr std::chrono::seconds kPatience{1};
  constexpr std::chrono::milliseconds kPause{1};
  const Deadline deadline = Deadline::after(kPatience);
  while (!in_exec.empty() && !deadline.passed()) {
    std::this_thread::sleep_for(kPause);
    bool marked = false;
    std::erase_if(in_exec, [&](const Found& each) {
      const Marking marking = marking_of(each.pid, marks);
      marked = marked || marking == Marking::kPresent;
      return marking != Marking::kUnknown;
    });
    if (marked) return true;
  }
  return false;
}

}  // namespace

std::vector<pid_t> kill_marked_processes(std::string_view marker, Deadline deadline,
                                         std::span<const std::string> spared) {
  const Marks marks{.marker = marker, .spared = spared};
  std::vector<pid_t> killed;
  do {
    // Again until none is found: one may have forked while we looked.
    Findings found = look_at_all(marks);
    // What is new since then was started by one of those in exec, or is not ours.
    if (found.marked.empty() && !any_comes_out_marked(std::move(found.in_exec), marks)) return killed;
    for (const Found& each : found.marked) send_signal(each.pidfd, SIGKILL);
    for (const Found& each : found.marked) {
      pollfd ended{.fd = each.pidfd.get(), .events = POLLIN, .revents = 0};
      ::poll(&ended, 1, deadline.poll_timeout_ms());
      killed.push_back(each.pid);
    }
  } while (!deadline.passed());
  return killed;
}

}  // namespace gyre::launch
