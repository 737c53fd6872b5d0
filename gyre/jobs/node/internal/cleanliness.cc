#include "gyre/jobs/node/internal/cleanliness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "gyre/base/acting_as.h"
#include "gyre/base/error.h"
#include "gyre/jobs/node/internal/private_folder.h"
#include "gyre/launch/sweep.h"

namespace gyre::jobs::node::internal {

using orders::NodePlace;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;

/// Whether a process that we can look into has the file mapped or open.
bool in_use(const fs::path& file) {
  std::error_code failure;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", failure)) {
    const std::string name = process.path().filename();
    if (name.empty() || name.front() < '0' || name.front() > '9') continue;
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.ends_with(file.native())) return true;
    }
    std::error_code ignored;
    for (fs::directory_iterator open(process.path() / "fd", ignored), end; open != end; open.increment(ignored)) {
      if (fs::read_symlink(open->path(), ignored) == file) return true;
      if (ignored) break;
    }
  }
  return false;
}

/// Of the attempt's other nodes on this machine. On another machine nothing is spared: MPI may have given processes the
/// environment of the node that started it.
std::vector<std::string> marks_of_neighbours(const WorkOrder& order) {
  const auto is_loopback = [](const NodePlace& node) { return node.address.starts_with("127."); };
  std::vector<std::string> marks;
  for (const NodePlace& node : order.nodes) {
    const bool same_machine = node.address == order.here().address || (is_loopback(node) && is_loopback(order.here()));
    if (same_machine && node.id != order.here().id) marks.push_back(fmt::format("{}={}", kNodeVariable, node.id));
  }
  return marks;
}

}  // namespace

std::string shell_mark(const WorkOrder& order) {
  return fmt::format("{}={} {}", kShellVariable, order.attempt, order.here().id);
}

std::vector<std::string> shared_memory_of(uid_t user) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(kSharedMemory, failure), end; entry != end; entry.increment(failure)) {
    struct stat status{};
    if (::lstat(entry->path().c_str(), &status) != 0 || status.st_uid != user) continue;
    names.push_back(entry->path().filename());
    if (failure) break;
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> clean_up_after(const WorkOrder& order, const std::vector<std::string>& before,
                                        const std::optional<UserId>& account, Deadline deadline) {
  std::vector<std::string> found;
  const std::string marker = fmt::format("{}={}", kAttemptVariable, order.attempt);
  const std::vector<std::string> spared = marks_of_neighbours(order);
  launch::kill_marked_processes(shell_mark(order), deadline);  // The job has not started these.
  const std::vector<pid_t> killed = launch::kill_marked_processes(marker, deadline, spared);
  if (!killed.empty()) found.push_back(fmt::format("processes {}, which were killed", fmt::join(killed, ", ")));
  const auto last_try = [&] {
    return launch::kill_marked_processes(marker, Deadline::after(std::chrono::seconds(1)), spared);
  };
  if (deadline.passed() && !last_try().empty()) {
    throw Error(ErrorCode::kTimeout, fmt::format("processes of attempt {} cannot be killed", order.attempt));
  }
  // Without a user of its own the job cannot be told from other programs of ours.
  if (!account) return found;
  std::vector<std::string> added;
  std::ranges::set_difference(shared_memory_of(account->user), before, std::back_inserter(added));
  for (const std::string& name : added) {
    const fs::path file = kSharedMemory / name;
    if (in_use(file)) continue;      // Of another program of the same user.
    const ActingAs owner(*account);  // Who may have made a folder, and put links in it.
    std::error_code failure;
    fs::remove_all(file, failure);
    found.push_back(fmt::format("shared memory {}, which was {}", file.string(),
                                failure ? "not removed: " + failure.message() : "removed"));
  }
  return found;
}

}  // namespace gyre::jobs::node::internal
