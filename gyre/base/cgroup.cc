#include "gyre/base/cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <limits>
#include <ranges>
#include <sstream>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"

namespace gyre {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPeriodMicroseconds = 100'000;
constexpr int kPauseMs = 2;

const char* name_of(CgroupController controller) { return controller == CgroupController::kCpu ? "cpu" : "memory"; }

/// Empty where it cannot be read.
std::string text_of(const fs::path& file) {
  try {
    constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 20;
    const Bytes bytes = read_file(file, kMostBytes);
    return std::string(as_text(bytes));
  } catch (const Error&) {
    return {};
  }
}

/// Nothing for "max", and where there is no number.
std::optional<std::uint64_t> number_at(std::string_view text) {
  std::uint64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

bool write_setting(const fs::path& file, const std::string& value) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
}

bool has_word(std::string_view list, char separator, std::string_view word) {
  return std::ranges::any_of(split(list, separator), [&](const std::string& each) { return each == word; });
}

/// Where the controller's tree is mounted, and the path of the process in it.
struct TreePlace {
  fs::path root;
  fs::path path;
};

std::optional<TreePlace> place_in_tree(pid_t process, const std::string& controller) {
  std::string unified;
  std::string own;
  std::istringstream memberships(text_of(fmt::format("/proc/{}/cgroup", process)));
  for (std::string line; std::getline(memberships, line);) {  // "4:memory:/path", "0::/path".
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) unified = line.substr(second + 1);
    if (has_word(controllers, ',', controller)) own = line.substr(second + 1);
  }
  std::optional<TreePlace> place;
  std::istringstream mounts(text_of("/proc/self/mounts"));
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string source;
    std::string root;
    std::string kind;
    std::string options;
    words >> source >> root >> kind >> options;
    if (kind == "cgroup" && has_word(options, ',', controller) && !own.empty()) return TreePlace{root, own};
    if (kind == "cgroup2" && own.empty() && !unified.empty()) place = TreePlace{root, unified};
  }
  return place;
}

bool has_controller(const fs::path& cgroup, CgroupController controller) {
  const bool memory = controller == CgroupController::kMemory;
  std::error_code ignored;
  return fs::exists(cgroup / (memory ? "memory.max" : "cpu.max"), ignored) ||
         fs::exists(cgroup / (memory ? "memory.limit_in_bytes" : "cpu.cfs_quota_us"), ignored);
}

bool set_limit(const fs::path& cgroup, CgroupController controller, std::uint64_t limit) {
  if (controller == CgroupController::kCpu) {
    const std::uint64_t quota = limit * kPeriodMicroseconds;
    return write_setting(cgroup / "cpu.max", fmt::format("{} {}", quota, kPeriodMicroseconds)) ||
           (write_setting(cgroup / "cpu.cfs_period_us", std::to_string(kPeriodMicroseconds)) &&
            write_setting(cgroup / "cpu.cfs_quota_us", std::to_string(quota)));
  }
  const std::string bytes = std::to_string(limit);
  // A limit with swap is never below the one without: on the way up it is first, on the way down last.
  write_setting(cgroup / "memory.memsw.limit_in_bytes", bytes);
  if (!write_setting(cgroup / "memory.max", bytes) && !write_setting(cgroup / "memory.limit_in_bytes", bytes)) {
    return false;
  }
  // Not every kernel has these.
  write_setting(cgroup / "memory.swap.max", "0");
  write_setting(cgroup / "memory.memsw.limit_in_bytes", bytes);
  return true;
}

/// Kills what is in it and in those below. Processes of other PID namespaces are shown as 0.
void kill_all(const fs::path& cgroup) {
  write_setting(cgroup / "cgroup.kill", "1");
  std::istringstream processes(text_of(cgroup / "cgroup.procs"));
  for (pid_t process = 0; processes >> process;) {
    if (process > 0) ::kill(process, SIGKILL);
  }
}

bool remove_tree(const fs::path& cgroup) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cgroup, ignored)) {
    if (entry.is_directory(ignored)) remove_tree(entry.path());
  }
  kill_all(cgroup);
  return ::rmdir(cgroup.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::vector<fs::path> cgroups_of(pid_t process, CgroupController controller) {
  const auto place = place_in_tree(process, name_of(controller));
  if (!place) return {};
  std::vector<fs::path> folders;
  std::error_code ignored;
  // In a container the path may be one of outside, of which the mount shows only the end.
  for (fs::path path = place->path; path.has_relative_path() && !has_word(path.native(), '/', "..");
       path = path.parent_path()) {
    const fs::path folder = place->root / path.relative_path();
    if (fs::is_directory(folder, ignored)) folders.push_back(folder);
  }
  if (fs::is_directory(place->root, ignored)) folders.push_back(place->root);
  return folders;
}

std::optional<std::uint64_t> memory_limit(const std::vector<fs::path>& cgroups) {
  constexpr std::uint64_t kNone = std::uint64_t{1} << 60;  // The first version writes the largest number of pages.
  std::optional<std::uint64_t> least;
  for (const fs::path& cgroup : cgroups) {
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      const auto limit = number_at(text_of(cgroup / file));
      if (limit && *limit < kNone && limit < least.value_or(kNone)) least = limit;
    }
  }
  return least;
}

std::optional<int> core_limit(const std::vector<fs::path>& cgroups) {
  std::optional<int> least;
  for (const fs::path& cgroup : cgroups) {
    const std::vector<std::string> both = split(text_of(cgroup / "cpu.max"), ' ');
    auto quota = number_at(both.front());
    auto period = both.size() == 2 ? number_at(both.back()) : std::nullopt;
    if (!quota) quota = number_at(text_of(cgroup / "cpu.cfs_quota_us"));  // -1: none.
    if (!period) period = number_at(text_of(cgroup / "cpu.cfs_period_us"));
    if (!quota || period.value_or(0) == 0) continue;
    const std::uint64_t cores = std::max<std::uint64_t>(1, (*quota + *period - 1) / *period);
    if (cores < static_cast<std::uint64_t>(least.value_or(std::numeric_limits<int>::max()))) {
      least = static_cast<int>(cores);
    }
  }
  return least;
}

std::int64_t memory_kills(const fs::path& cgroup) {
  for (const char* file : {"memory.events", "memory.oom_control"}) {
    std::istringstream lines(text_of(cgroup / file));
    std::string name;
    for (std::int64_t count = 0; lines >> name >> count;) {
      if (name == "oom_kill") return count;
    }
  }
  return 0;
}

fs::path make_cgroup(CgroupController controller, const std::string& name, std::uint64_t limit) {
  const std::string word = name_of(controller);
  const std::vector<fs::path> parents = cgroups_of(::getpid(), controller);
  if (parents.empty()) {
    throw Error(ErrorCode::kUnsupported, fmt::format("this machine has no cgroups with the {} controller", word));
  }
  int failure = ENOTSUP;
  for (const fs::path& parent : parents) {
    const fs::path folder = parent / name;
    const bool is_new = ::mkdir(folder.c_str(), 0755) == 0;
    if (!is_new && errno != EEXIST) {
      failure = errno;
      continue;
    }
    // In the second version a cgroup with processes, but for the outermost, can have none with controllers in it.
    if (!has_controller(folder, controller)) write_setting(parent / "cgroup.subtree_control", "+" + word);
    if (has_controller(folder, controller) && set_limit(folder, controller, limit)) return folder;
    if (is_new) ::rmdir(folder.c_str());
  }
  throw Error(ErrorCode::kUnsupported, fmt::format("this process cannot make cgroups with the {} controller: {}", word,
                                                   std::generic_category().message(failure)));
}

void remove_cgroup(const fs::path& cgroup, Deadline deadline) {
  // The kernel is at processes that have just ended for a moment.
  while (!remove_tree(cgroup)) {
    if (deadline.passed()) {
      throw Error(ErrorCode::kTimeout, fmt::format("the cgroup {} cannot be removed", cgroup.string()));
    }
    ::poll(nullptr, 0, kPauseMs);
  }
}

}  // namespace gyre
