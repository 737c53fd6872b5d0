#include "gyre/jobs/containers/internal/contained_processes.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>

namespace gyre::jobs::containers::internal {

namespace {

namespace fs = std::filesystem;

/// The fourth word of /proc/PID/stat; the second, in parentheses, may have anything in it. 0: it has gone.
pid_t parent_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = text.rfind(") ");
  if (end == std::string::npos || end + 4 >= text.size()) return 0;
  pid_t parent = 0;
  std::from_chars(text.data() + end + 4, text.data() + text.size(), parent);
  return parent;
}

std::map<pid_t, pid_t> all_parents() {
  std::map<pid_t, pid_t> parents;
  std::error_code failure;
  for (auto entry = fs::directory_iterator("/proc", failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    const std::string name = entry->path().filename();
    pid_t process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ptr != name.data() + name.size()) continue;
    parents[process] = parent_of(process);
  }
  return parents;
}

std::string pid_namespace_of(const std::string& process) {
  std::error_code failure;
  return fs::read_symlink(fmt::format("/proc/{}/ns/pid", process), failure);
}

}  // namespace

void kill_contained(pid_t ancestor) {
  const std::map<pid_t, pid_t> parents = all_parents();
  const std::string own = pid_namespace_of("self");
  for (const auto& [process, parent] : parents) {
    pid_t above = parent;
    while (above > 1 && above != ancestor) {
      const auto found = parents.find(above);
      above = found == parents.end() ? 0 : found->second;
    }
    if (above != ancestor) continue;
    const std::string its = pid_namespace_of(std::to_string(process));
    if (!its.empty() && its != own) ::kill(process, SIGKILL);
  }
}

}  // namespace gyre::jobs::containers::internal
