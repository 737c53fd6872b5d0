#include "gyre/jobs/agent/internal/shared_folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "gyre/base/account.h"
#include "gyre/base/file.h"

namespace gyre::jobs::agent::internal {
namespace {

namespace fs = std::filesystem;

std::error_code last_error() { return {errno, std::generic_category()}; }

/// The write bits of the folder above that a new one has as well: those of its group only where all others have them
/// too, or it is the same group.
mode_t inherited_bits(const struct stat& above, const struct stat& made) {
  mode_t bits = above.st_mode & S_IWOTH;
  if (bits != 0 || above.st_gid == made.st_gid) bits |= above.st_mode & S_IWGRP;
  return bits == 0 ? 0 : bits | S_ISVTX;
}

std::error_code make_in(const fs::path& above, const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0) return errno == EEXIST ? std::error_code{} : last_error();
  // By what was made, whatever its path leads to by now.
  const UniqueFd made(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat there{};
  struct stat here{};
  if (!made || ::stat(above.c_str(), &there) != 0 || ::fstat(made.get(), &here) != 0) return last_error();
  const mode_t bits = inherited_bits(there, here);
  if (here.st_uid != ::geteuid() || bits == 0) return {};
  return ::fchmod(made.get(), (here.st_mode & 07777) | bits) == 0 ? std::error_code{} : last_error();
}

}  // namespace

std::error_code make_shared_folders(const fs::path& folder) {
  std::error_code failure;
  if (fs::is_directory(folder, failure)) return {};
  const fs::path above = folder.parent_path();
  if (above == folder || above.empty()) return failure;
  failure = make_shared_folders(above);
  return failure ? failure : make_in(above, folder);
}

std::string who_may_open(const fs::path& path, bool of_root, const std::function<fs::path(const fs::path&)>& outside) {
  fs::path nearest = path;
  struct stat status{};
  while (::stat(nearest.c_str(), &status) != 0) {
    if (!nearest.has_relative_path()) return "";
    nearest = nearest.parent_path();
  }
  if (!S_ISDIR(status.st_mode) || ::access(nearest.c_str(), W_OK | X_OK) == 0) return "";
  const std::string place = outside(nearest).string();
  const std::string owner = name_of_account(status.st_uid);
  if (!of_root) {
    return fmt::format("; '{0}' belongs to '{1}', who can let others make folders there: `chmod a+rwxt {0}`", place,
                       owner);
  }
  return fmt::format(
      "; '{0}' belongs to '{1}'. If it belongs to root, every job gets a folder of its own in it: `chown root {0} && "
      "chmod 755 {0}`. Where root has no rights (NFS), its owner can let everybody make folders there: `chmod a+rwxt "
      "{0}`; then whoever makes one first can replace what others have in it",
      place, owner);
}

}  // namespace gyre::jobs::agent::internal
