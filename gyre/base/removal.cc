#include "gyre/base/removal.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/acting_as.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre {

namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 200;  // A descriptor for each folder on the way.

[[noreturn]] void fail(const fs::path& path, int failure) {
  throw system_error(fmt::format("cannot remove {}", path.string()), failure);
}

std::vector<std::string> names_in(int folder, const fs::path& path) {
  UniqueFd again(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) fail(path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(again.get()), ::closedir);
  if (!stream) fail(path, errno);
  again.release();
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

/// A folder below `parent`, which its owner can read and change afterwards.
UniqueFd open_folder(int parent, const std::string& name, const fs::path& path) {
  UniqueFd folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno == EACCES && ::fchmodat(parent, name.c_str(), S_IRWXU, AT_SYMLINK_NOFOLLOW) == 0) {
    folder = UniqueFd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (!folder) fail(path, errno);
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) fail(path, errno);
  // Where it is another's, whose right it is to do this, removing says so.
  if ((status.st_mode & S_IRWXU) != S_IRWXU) static_cast<void>(::fchmod(folder.get(), status.st_mode | S_IRWXU));
  return folder;
}

/// Empties folders below one that is to go.
class Emptying {
 public:
  explicit Emptying(int top) : top_(top) {}

  /// `folder` is `depth` below the top.
  void empty(int folder, const fs::path& path, int depth) {
    for (const std::string& name : names_in(folder, path)) {
      if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) continue;
      if (errno != EISDIR) fail(path / name, errno);
      const UniqueFd below = open_folder(folder, name, path / name);
      if (depth == kDeepest) {
        // From the top on it is not as deep.
        const std::string shallow = fmt::format("gyre-removal-{}", ++moved_);
        if (::renameat(folder, name.c_str(), top_, shallow.c_str()) != 0) fail(path / name, errno);
        continue;
      }
      empty(below.get(), path / name, depth + 1);
      if (::unlinkat(folder, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) fail(path / name, errno);
    }
  }
  int moved() const { return moved_; }

 private:
  int top_;
  int moved_ = 0;
};

void empty_folder(int folder, const fs::path& path) {
  Emptying emptying(folder);
  int moved = -1;
  while (std::exchange(moved, emptying.moved()) != emptying.moved()) emptying.empty(folder, path, 0);
}

}  // namespace

void remove_as_its_owner(const fs::path& path) {
  const std::string name = path.filename();
  const UniqueFd parent(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status{};
  if (!parent || ::fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return;
    fail(path, errno);
  }
  const bool is_folder = S_ISDIR(status.st_mode);
  if (is_folder) {
    const ActingAs owner(UserId{.user = status.st_uid, .group = status.st_gid, .groups = {}});
    empty_folder(open_folder(parent.get(), name, path).get(), path);
  }
  if (::unlinkat(parent.get(), name.c_str(), is_folder ? AT_REMOVEDIR : 0) != 0) fail(path, errno);
}

}  // namespace gyre
