#include "gyre/jobs/node/internal/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "gyre/base/acting_as.h"
#include "gyre/base/error.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/node/node_folders.h"

namespace gyre::jobs::node::internal {

namespace fs = std::filesystem;

PrivateFolder::PrivateFolder(fs::path path, const UserId& user) : path_(std::move(path)) {
  const auto fail = [&] { throw system_error(fmt::format("cannot make the folder {}", path_.string()), errno); };
  // Root's until it is given away: nobody can put something in its place, because the folder above it is sticky.
  if (::mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail();
  held_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!held_ || ::fstat(held_.get(), &status) != 0) fail();
  if (status.st_uid != 0 && status.st_uid != user.user) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("user '{}' has taken the name {}, which a job needs; remove it", user_name(status.st_uid),
                            path_.string()));
  }
  std::error_code failure;
  if (status.st_uid == 0 && user.user != 0 && !fs::is_empty(path_, failure)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}, which a job needs, is root's and holds something already; remove it", path_.string()));
  }
  if (::fchown(held_.get(), user.user, user.group) != 0) fail();
  // A job that locks its own folder only keeps it from being removed.
  [[maybe_unused]] const int ignored = ::flock(held_.get(), LOCK_SH | LOCK_NB);
}

void PrivateFolder::leave() {
  held_.reset();
  remove_private_folder(path_);
}

void remove_private_folder(const fs::path& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!folder || ::fstat(folder.get(), &status) != 0 || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return;
  const ActingAs owner({.user = status.st_uid, .group = status.st_gid, .groups = {}});  // Who may have put links in it.
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) throw system_error(fmt::format("cannot remove {}", path.string()), failure.value());
}

void PrivateFolders::use(const std::string& attempt, const UserId& user, bool own_memory) {
  if (temporary_) return;
  temporary_.emplace(temporary_folder(attempt), user);
  std::error_code ignored;
  if (!own_memory || !fs::is_directory(kSharedMemory, ignored)) return;
  // The nodes of an attempt on one machine see the same one, because ranks of one host exchange their data through it.
  PrivateFolder memory(kSharedMemory / temporary_->path().filename(), user);
  if (::mount(memory.path().c_str(), kSharedMemory.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    const int failure = errno;
    memory.leave();
    throw system_error(fmt::format("cannot mount {} at {}", memory.path().string(), kSharedMemory.string()), failure);
  }
  memory_.emplace(std::move(memory));
}

void PrivateFolders::leave() {
  if (memory_) {
    if (::umount2(kSharedMemory.c_str(), MNT_DETACH) != 0) throw system_error("cannot unmount /dev/shm", errno);
    memory_->leave();
    memory_.reset();
  }
  if (temporary_) temporary_->leave();
  temporary_.reset();
}

}  // namespace gyre::jobs::node::internal
