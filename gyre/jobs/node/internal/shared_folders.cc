#include "gyre/jobs/node/internal/shared_folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "gyre/base/account.h"
#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {
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

/// The first link on the way that somebody other than root has put there.
std::optional<fs::path> strange_link(const fs::path& path) {
  fs::path at;
  for (const fs::path& part : path) {
    at /= part;
    struct stat status{};
    if (::lstat(at.c_str(), &status) == 0 && S_ISLNK(status.st_mode) && status.st_uid != 0) return at;
  }
  return std::nullopt;
}

std::string owner_of(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 ? name_of_account(status.st_uid) : "nobody";
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
  if (const auto link = strange_link(nearest)) {
    // Whoever has put it there would choose what an administrator opens.
    return fmt::format("; '{}' is a link of '{}' to a folder in which this account cannot make any: remove the link",
                       outside(*link).string(), owner_of(*link));
  }
  const std::string place = outside(nearest).string();
  const std::string owner = name_of_account(status.st_uid);
  if (!of_root) {
    return fmt::format("; '{0}' belongs to '{1}', who can let others make folders there: `chmod a+rwxt {0}`", place,
                       owner);
  }
  constexpr mode_t kOthers = S_IWGRP | S_IWOTH | S_IXOTH;
  if (status.st_uid == 0 && (status.st_mode & kOthers) == S_IXOTH && nearest != path) {
    const std::string missing = path.lexically_relative(nearest).begin()->string();
    return fmt::format("; '{0}' belongs to root and has no folder '{1}': `mkdir {0}/{1}`", place, missing);
  }
  return fmt::format(
      "; '{0}' belongs to '{1}'. If it belongs to root, every job gets a folder of its own in it: `chown root {0} && "
      "chmod 755 {0}`. Where root has no rights (NFS), its owner can let everybody make folders there: `chmod a+rwxt "
      "{0}`; then whoever makes one first can replace what others have in it",
      place, owner);
}

}  // namespace gyre::jobs::node::internal
