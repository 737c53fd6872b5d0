#include "workloads/training/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/group/topology.h"

namespace gyre::training {
namespace {

constexpr auto kLongestEnd = std::chrono::seconds(2);  // Of a rank whose job was killed.
constexpr int kPauseMs = 20;
constexpr std::string_view kFileName = "run.lock";

/// How a holder's text ends, after the number of its process.
std::string on_this_host() { return fmt::format(" on {}", group::this_host_name()); }

/// "process 17 on node3"; empty where a holder has not written it yet.
std::string holder_of(const UniqueFd& file) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  const std::string_view words(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return std::string(words.substr(0, words.find('\n')));
}

UniqueFd open_file(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) throw system_error(fmt::format("cannot write {}", path.string()), errno);
  return file;
}

/// Whether `file` still has the name `path`: its holder removes it when it ends.
bool is_there(const UniqueFd& file, const std::filesystem::path& path) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

std::optional<std::string> find_local_locks(const UniqueFd& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return std::nullopt;
  std::ifstream table("/proc/self/mountinfo");
  const std::string mounts{std::istreambuf_iterator<char>(table), {}};
  return type_with_local_locks(mounts, major(status.st_dev), minor(status.st_dev));
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder, std::string_view option) : path_(folder / kFileName) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw system_error(fmt::format("cannot make the folder {}", folder.string()), failure.value());
  const Deadline deadline = Deadline::after(kLongestEnd);
  while (true) {
    UniqueFd file = open_file(path_);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_there(file, path_)) continue;
      file_ = std::move(file);
      note_holder();
      return;
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      remark_ = fmt::format("{} cannot be locked ({}), so another run that uses the folder would not be noticed",
                            folder.string(), std::generic_category().message(errno));
      return;
    }
    if (deadline.passed()) {
      const std::string holder = holder_of(file);
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is in use by another run ({}): wait until that has ended, or choose another folder "
                              "with {}",
                              folder.string(), holder.empty() ? "of an unknown process" : holder, option));
    }
    ::poll(nullptr, 0, kPauseMs);
  }
}

void RunLock::note_holder() {
  const std::string before = holder_of(file_);
  if (!before.empty() && !before.ends_with(on_this_host())) {
    if (const auto type = find_local_locks(file_)) {
      remark_ = fmt::format(
          "{} is from {}, and locks of this file system ({}) hold on one host only: make sure that "
          "this process has ended",
          path_.string(), before, *type);
    }
  }
  // Only for messages: on a full disk the run goes on without.
  const std::string text = fmt::format("process {}{}\n", ::getpid(), on_this_host());
  if (::ftruncate(file_.get(), 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(file_.get(), text.data(), text.size(), 0);
}

RunLock::~RunLock() {
  // While it is still locked: a run that has opened it meanwhile sees that it has lost its name.
  if (file_) ::unlink(path_.c_str());
}

std::optional<std::string> type_with_local_locks(std::string_view mountinfo, unsigned major, unsigned minor) {
  const std::string device = fmt::format("{}:{}", major, minor);
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::ranges::find(fields, "-");  // Then type, source and options follow.
    if (fields.size() < 3 || fields[2] != device || fields.end() - dash < 4) continue;
    const std::string& type = dash[1];
    const std::string options = "," + dash[3] + ",";
    const auto has = [&](std::string_view option) { return options.find(fmt::format(",{},", option)) != options.npos; };
    const bool nfs = type.starts_with("nfs") && (has("local_lock=all") || has("local_lock=flock") || has("nolock"));
    const bool smb = (type == "cifs" || type == "smb3") && has("nobrl");
    const bool lustre = type == "lustre" && has("localflock");
    if (nfs || smb || lustre || type.starts_with("fuse")) return type;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace gyre::training
