#include "apps/gyre/service_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "apps/gyre/usage_error.h"
#include "gyre/base/error.h"
#include "gyre/jobs/node/node_folders.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;

constexpr const char* kParent = "/tmp";
constexpr const char* kPrefix = "gyre-job-";
constexpr const char* kMark = "temporary.lock";

bool is_locked(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

bool is_own_folder(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

/// Node programs outlive their service until their lease is over.
bool has_nodes(const fs::path& folder) {
  std::error_code none;
  for (const auto& node : fs::directory_iterator(folder / "nodes", none)) {
    if (is_locked(jobs::node::NodeFolders(node.path()).lock())) return true;
  }
  return false;
}

/// Of programs that were killed.
void remove_abandoned() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kParent, ignored)) {
    const fs::path& folder = entry.path();
    if (!folder.filename().native().starts_with(kPrefix) || !is_own_folder(folder)) continue;
    if (!fs::exists(folder / kMark, ignored) || is_locked(folder / kMark) || has_nodes(folder)) continue;
    fs::remove_all(folder, ignored);
  }
}

/// Locked before it has its name, so that no other program takes the folder for an abandoned one.
UniqueFd make_mark(const fs::path& folder) {
  const fs::path unfinished = folder / "temporary.new";
  UniqueFd mark(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!mark || ::flock(mark.get(), LOCK_EX | LOCK_NB) != 0) {
    throw system_error(fmt::format("cannot lock {}", unfinished.string()), errno);
  }
  fs::rename(unfinished, folder / kMark);
  return mark;
}

}  // namespace

ServiceFolder::ServiceFolder(const std::string& chosen)
    : kept_(!chosen.empty()), path_(kept_ ? fs::absolute(chosen) : fs::path()) {
  if (kept_) {
    make_chosen();
    return;
  }
  remove_abandoned();
  std::string name = fmt::format("{}/{}XXXXXX", kParent, kPrefix);
  if (::mkdtemp(name.data()) == nullptr) throw system_error("cannot make a folder in /tmp", errno);
  path_ = name;
  fs::permissions(path_, fs::perms(0711));
  mark_ = make_mark(path_);
}

ServiceFolder::~ServiceFolder() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

void ServiceFolder::keep() {
  kept_ = true;
  std::error_code ignored;
  fs::remove(path_ / kMark, ignored);
}

void ServiceFolder::make_chosen() const {
  std::error_code failure;
  fs::create_directories(path_, failure);
  if (!failure && fs::is_directory(path_, failure)) return;
  throw UsageError(fmt::format("--folder {}: cannot make the folder: {}; name another one", path_.string(),
                               failure ? failure.message() : "there is a file"));
}

}  // namespace gyre::app
