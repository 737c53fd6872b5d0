#include "gyre/jobs/node/strays.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/process_search.h"
#include "gyre/jobs/node/internal/saved_attempt.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/launch/sweep.h"

namespace gyre::jobs::node {

using orders::is_plain_name;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;
using internal::Found;

constexpr std::chrono::seconds kLongestLook{1};

std::vector<std::string> list_of(const std::string& words) {
  std::vector<std::string> list;
  std::istringstream stream(words);
  for (std::string word; std::getline(stream, word);) list.push_back(word);
  return list;
}

/// The folder of the node that a node program, or a `gyre launch` of an attempt, works for; empty of other processes.
fs::path node_root_of(pid_t pid) {
  const std::vector<std::string> words = list_of(internal::words_of(pid));
  // The first is empty, the second the program.
  const bool is_program = words.size() > 2 && words[2] == "agent";
  const bool is_launch = words.size() > 2 && words[2] == "launch";
  constexpr std::string_view kSpecification = ".sock.json";
  for (std::size_t at = 3; (is_program || is_launch) && at < words.size(); ++at) {
    const std::string& word = words[at];
    if (is_program && words[at - 1] == "--root") return word;
    if (is_launch && word.starts_with("/") && word.ends_with(kSpecification)) {
      return fs::path(word).parent_path().parent_path();
    }
  }
  return {};
}

/// Whether a service, or its node program, holds the lock of a file.
bool is_held(const fs::path& lock) {
  const UniqueFd file(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

std::string pid_in(const fs::path& lock) {
  std::string pid;
  std::getline(std::ifstream(lock), pid);
  return pid;
}

/// Whether what the process works at is what lies at this path now: after a folder was moved away, another one may.
bool is_at_home(pid_t pid, const fs::path& root) {
  const NodeFolders folders(root);
  std::error_code ignored;
  if (fs::exists(folders.current(), ignored)) return true;
  return pid_in(folders.lock()) == std::to_string(pid) && is_held(folders.lock());
}

/// All values that the variable has in environments that we may read.
std::set<std::string> values_of(const std::string& name) {
  std::set<std::string> values;
  internal::processes_where([&](const Found& each) {
    try {
      const Bytes bytes = read_file(fmt::format("/proc/{}/environ", each.pid), kLargestEnvironmentBytes);
      std::string text(as_text(bytes));
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\0', at), text.size());
        const std::string entry = text.substr(at, end - at);
        if (entry.starts_with(name + "=")) values.insert(entry.substr(name.size() + 1));
        at = end + 1;
      }
    } catch (const Error&) {
      return false;  // Somebody else's, or one that has just ended.
    }
    return false;
  });
  return values;
}

/// Whether what the process says of its node's folder can be believed. What has a job's account may say anything: of
/// that, only folders of our own nodes, and those that nobody but this account can have made, under their real names.
bool is_credible(pid_t pid, const fs::path& root, const StraySearch& search) {
  if (internal::account_of(pid) == ::geteuid()) return true;
  if (root.parent_path() == search.nodes) return is_plain_name(root.filename().native());
  std::error_code failure;
  if (fs::canonical(root, failure) != root || failure) return false;
  const auto is_ours = [](const fs::path& folder) {
    struct stat status{};
    return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
  };
  return is_ours(root) && is_ours(root.parent_path()) && is_ours(root.parent_path().parent_path());
}

/// The folders of the nodes, outside of ours, for which node programs and launchers work.
std::set<fs::path> strange_nodes(const StraySearch& search) {
  std::set<fs::path> roots;
  internal::processes_where([&](const Found& each) {
    const fs::path root = node_root_of(each.pid);
    if (root.empty() || !is_credible(each.pid, root, search)) return false;
    if (root.parent_path() != search.nodes || !is_at_home(each.pid, root)) roots.insert(root);
    return false;
  });
  return roots;
}

}  // namespace

std::optional<WorkOrder> order_in_hand(const fs::path& node_root) {
  try {
    const auto state = internal::load_state(NodeFolders(node_root));
    return state ? std::optional(state->order) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // The node program says so when it comes.
  }
}

std::vector<KeptRecord> kept_records(const fs::path& node_root) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  std::vector<KeptRecord> records;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(NodeFolders(node_root).records(), ignored)) {
    if (entry.path().extension() != ".json") continue;
    try {
      const auto json =
          orders::parse_json(as_text(read_file(entry.path(), kMostBytes)), kMostBytes, entry.path().string());
      const orders::JsonFields fields(json, "the record of an attempt");
      if (!fields.has(internal::kOrderOfRecord)) continue;  // Of an earlier version.
      records.push_back(
          {orders::work_order_from_json(fields.at(internal::kOrderOfRecord)), orders::node_report_from_json(json)});
    } catch (const Error&) {
      continue;  // The node program says so when it comes.
    }
  }
  return records;
}

bool has_record(const fs::path& node_root, const std::string& attempt) {
  std::error_code ignored;
  return fs::exists(NodeFolders(node_root).record(attempt), ignored);
}

std::string end_strays(const StraySearch& search) {
  std::vector<std::string> left;
  std::set<std::string> elsewhere;  // Attempts of services that are alive.
  for (const fs::path& root : strange_nodes(search)) {
    const bool own_path = root.parent_path() == search.nodes;
    const std::string attempt = internal::attempt_in(NodeFolders(root).current());
    if (!own_path && !search.is_ours(attempt)) continue;
    const fs::path lock = root.parent_path().parent_path() / "catalog.db.lock";
    if (!own_path && is_held(lock)) {
      elsewhere.insert(attempt);
      left.push_back(
          fmt::format("attempt {} runs on a node of the server in {}, process {}; end that server and its "
                      "jobs, or this server: both have the same jobs",
                      attempt, lock.parent_path().string(), pid_in(lock)));
      continue;
    }
    const auto found = end_lost_attempt({.attempt = attempt, .node_root = root});
    if (!found.empty()) {
      left.push_back(fmt::format("processes {} of the node in {}, which this server does not have, are being ended",
                                 fmt::join(found, ", "), root.string()));
    }
  }
  for (const std::string& attempt : values_of(internal::kAttemptVariable)) {
    if (!search.is_ours(attempt) || search.is_in_hand(attempt) || elsewhere.contains(attempt)) continue;
    const std::string marker = fmt::format("{}={}", internal::kAttemptVariable, attempt);
    const auto found = launch::kill_marked_processes(marker, Deadline::after(kLongestLook));
    if (!found.empty()) {
      left.push_back(fmt::format("processes {} of attempt {}, which no node of this server has, are being ended",
                                 fmt::join(found, ", "), attempt));
    }
  }
  return fmt::format("{}", fmt::join(left, "; "));
}

}  // namespace gyre::jobs::node
