#include "gyre/jobs/node/lost_node.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/job_limits.h"
#include "gyre/jobs/node/internal/private_folder.h"
#include "gyre/jobs/node/internal/process_search.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/launch/sweep.h"

namespace gyre::jobs::node {

using orders::is_plain_name;

namespace {

namespace fs = std::filesystem;
using internal::attempt_in;
using internal::Found;
using internal::has_same_folder;
using internal::has_word;
using internal::processes_where;
using internal::words_of;

constexpr std::chrono::seconds kLongestLook{1};
constexpr std::chrono::seconds kLongestAbandonment{10};
constexpr int kPauseMs = 10;

fs::path lost_mark(const fs::path& node_root) { return NodeFolders(node_root).own() / "lost"; }

/// A guardian kills the process groups of the launcher that it has lost, and ends.
bool is_guardian(pid_t pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return name == launch::kGuardianName;
}

void kill_all(const std::vector<Found>& found) {
  const Deadline deadline = Deadline::after(kLongestLook);
  for (const Found& each : found) send_signal(each.pidfd, is_guardian(each.pid) ? SIGCONT : SIGKILL);
  for (const Found& each : found) {
    pollfd ended{.fd = each.pidfd.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, deadline.poll_timeout_ms());
  }
}

/// Those of `roots`, and all that descends from them.
std::vector<Found> with_descendants(const std::vector<Found>& roots) {
  std::map<pid_t, pid_t> parents;
  processes_where([&](const Found& each) {
    parents[each.pid] = each.parent;
    return false;
  });
  const auto descends = [&](const Found& each) {
    // A chain of parents is never longer than there are processes.
    pid_t pid = each.pid;
    for (std::size_t steps = 0; pid > 1 && steps <= parents.size(); ++steps) {
      if (std::ranges::find(roots, pid, &Found::pid) != roots.end()) return true;
      const auto parent = parents.find(pid);
      if (parent == parents.end()) return false;
      pid = parent->second;
    }
    return false;
  };
  return processes_where(descends);
}

/// Kills what fits and, where asked, what descends from it, until a look finds nothing that fits.
std::vector<pid_t> kill_where(const std::function<bool(const Found&)>& fits, bool descendants) {
  std::vector<pid_t> killed;
  const Deadline deadline = Deadline::after(kLongestLook);
  do {
    std::vector<Found> found = processes_where(fits);
    if (found.empty()) return killed;
    if (descendants) found = with_descendants(found);
    kill_all(found);
    for (const Found& each : found) killed.push_back(each.pid);
  } while (!deadline.passed());
  return killed;
}

/// What a node that is lost has left in /tmp and /dev/shm; what cannot be removed stays.
void remove_private_folders(const std::string& attempt) {
  if (!is_plain_name(attempt)) return;
  const fs::path temporary = temporary_folder(attempt);
  for (const fs::path& folder : {temporary, internal::kSharedMemory / temporary.filename()}) {
    try {
      internal::remove_private_folder(folder);
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace

bool is_program_of(pid_t pid, const fs::path& root) {
  if (!proc_has_our_numbers()) return false;
  const std::string words = words_of(pid);
  // The verb comes second. Whoever starts a node program (srun, env) has the same words further behind.
  constexpr std::string_view kVerb = "\nagent\n";
  const std::size_t second = words.find('\n', 1);
  return second != std::string::npos && words.compare(second, kVerb.size(), kVerb) == 0 &&
         has_word(words, root.string()) && has_same_folder(pid, root);
}

std::vector<pid_t> kill_launch(const fs::path& socket) {
  const std::string specification = socket.string() + ".json";
  return kill_where(
      [&](const Found& each) {
        const std::string words = words_of(each.pid);
        return has_word(words, "launch") && has_word(words, specification) &&
               has_same_folder(each.pid, socket.parent_path());
      },
      true);
}

void mark_lost(const LostAttempt& lost) {
  std::error_code failure;
  fs::create_directories(lost_mark(lost.node_root).parent_path(), failure);
  try {
    write_file_atomically(lost_mark(lost.node_root), as_bytes(lost.attempt));
  } catch (const Error&) {
    return;  // A full disk must not keep alive what has to end.
  }
}

bool is_marked_lost(const fs::path& node_root, const std::string& attempt) {
  std::string marked;
  std::getline(std::ifstream(lost_mark(node_root)), marked);
  return marked == attempt;
}

std::vector<pid_t> end_lost_attempt(const LostAttempt& lost) {
  const NodeFolders folders(lost.node_root);
  std::vector<pid_t> found =
      kill_where([&](const Found& each) { return each.pid != ::getpid() && is_program_of(each.pid, lost.node_root); },
                 false);  // Its supervisor has the same words, and may be who asks.
  for (const fs::path& socket : folders.sockets()) std::ranges::copy(kill_launch(socket), std::back_inserter(found));
  std::vector<std::string> spared;
  for (const std::string& node : lost.other_nodes)
    spared.push_back(fmt::format("{}={}", internal::kNodeVariable, node));
  if (!lost.attempt.empty()) {
    const std::string marker = fmt::format("{}={}", internal::kAttemptVariable, lost.attempt);
    std::ranges::copy(launch::kill_marked_processes(marker, Deadline::after(kLongestLook), spared),
                      std::back_inserter(found));
    // With it goes all that is in the container, which removes itself.
    const std::string holder = fmt::format("{}={}", internal::kContainerVariable, lost.node_root.string());
    std::ranges::copy(launch::kill_marked_processes(holder, Deadline::after(kLongestLook)), std::back_inserter(found));
  }
  if (!found.empty()) return found;
  remove_private_folders(lost.attempt);
  internal::remove_limits(lost.node_root);
  // Without its sockets the attempt would look like one that is yet to be started.
  std::error_code ignored;
  fs::rename(folders.current(), folders.abandoned(), ignored);
  return found;
}

void abandon_attempt(const fs::path& node_root) {
  const LostAttempt lost{.attempt = attempt_in(NodeFolders(node_root).current()), .node_root = node_root};
  const Deadline deadline = Deadline::after(kLongestAbandonment);
  while (!end_lost_attempt(lost).empty() && !deadline.passed()) ::poll(nullptr, 0, kPauseMs);
}

}  // namespace gyre::jobs::node
