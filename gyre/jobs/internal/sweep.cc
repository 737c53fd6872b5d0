#include "gyre/jobs/internal/sweep.h"

#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"

namespace gyre::jobs {

namespace {

constexpr std::uint64_t kLargestEnvironmentBytes = std::uint64_t{8} << 20;

bool has_marker(pid_t pid, std::string_view marker) {
  try {
    const Bytes bytes = read_file(fmt::format("/proc/{}/environ", pid), kLargestEnvironmentBytes);
    const std::string_view entries = as_text(bytes);
    for (std::size_t at = entries.find(marker); at != std::string_view::npos; at = entries.find(marker, at + 1)) {
      const std::size_t end = at + marker.size();
      const bool starts = at == 0 || entries[at - 1] == '\0';
      if (starts && (end == entries.size() || entries[end] == '\0')) return true;
    }
  } catch (const Error&) {
    return false;  // Somebody else's process, or one that has just ended: not ours to kill.
  }
  return false;
}

struct Marked {
  pid_t pid;
  UniqueFd pidfd;
};

/// The descriptor is taken before the environment is read: what is killed is what was looked at.
std::vector<Marked> find_marked(std::string_view marker) {
  std::vector<Marked> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return found;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    UniqueFd pidfd = open_pidfd(pid);
    if (pidfd && has_marker(pid, marker)) found.push_back({pid, std::move(pidfd)});
  }
  return found;
}

}  // namespace

std::vector<pid_t> kill_marked_processes(std::string_view marker, Deadline deadline) {
  std::vector<pid_t> killed;
  do {
    // Again until none is found: one may have forked while we looked.
    const std::vector<Marked> found = find_marked(marker);
    if (found.empty()) return killed;
    for (const Marked& each : found) send_signal(each.pidfd, SIGKILL);
    for (const Marked& each : found) {
      pollfd ended{.fd = each.pidfd.get(), .events = POLLIN, .revents = 0};
      ::poll(&ended, 1, deadline.poll_timeout_ms());
      killed.push_back(each.pid);
    }
  } while (!deadline.passed());
  return killed;
}

}  // namespace gyre::jobs
