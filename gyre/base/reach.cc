#include "gyre/base/reach.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <system_error>

namespace gyre {

namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // As the kernel follows.

bool may(const struct stat& status, const UserId& who, mode_t right) {
  if (who.user == 0) return true;
  if (status.st_uid == who.user) return ((status.st_mode >> 6) & right) != 0;
  const bool member = status.st_gid == who.group || std::ranges::find(who.groups, status.st_gid) != who.groups.end();
  return ((status.st_mode >> (member ? 3 : 0)) & right) != 0;
}

bool has_access_list(const fs::path& path) {
  return ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
}

void prepend(std::deque<fs::path>& parts, const fs::path& path) {
  std::deque<fs::path> whole(path.begin(), path.end());
  whole.insert(whole.end(), parts.begin(), parts.end());
  parts = std::move(whole);
}

}  // namespace

std::optional<Obstacle> obstacle_before(const fs::path& path, const UserId& who) {
  std::deque<fs::path> parts;
  prepend(parts, path);
  fs::path at = "/";
  int links = 0;
  struct stat status{};
  while (!parts.empty()) {
    const fs::path part = parts.front();
    parts.pop_front();
    if (part.empty() || part == ".") continue;
    const fs::path next = part == "/" ? fs::path("/") : part == ".." ? at.parent_path() : at / part;
    if (::lstat(next.c_str(), &status) != 0) return std::nullopt;
    if (S_ISLNK(status.st_mode)) {
      std::error_code failure;
      const fs::path target = fs::read_symlink(next, failure);
      if (failure || ++links > kMostLinks) return std::nullopt;
      prepend(parts, target);
      continue;
    }
    at = next;
    if (S_ISDIR(status.st_mode) && !may(status, who, S_IXOTH)) {
      return has_access_list(at) ? std::nullopt : std::optional(Obstacle{at, true});
    }
  }
  const bool unreadable = S_ISREG(status.st_mode) && !may(status, who, S_IROTH) && !has_access_list(at);
  return unreadable ? std::optional(Obstacle{at, false}) : std::nullopt;
}

UserId own_user() {
  UserId own{::geteuid(), ::getegid(), {}};
  const int count = ::getgroups(0, nullptr);
  own.groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  const int filled = ::getgroups(static_cast<int>(own.groups.size()), own.groups.data());
  own.groups.resize(static_cast<std::size_t>(std::max(filled, 0)));
  return own;
}

std::string user_name(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16'384> text;
  ::getpwuid_r(user, &entry, text.data(), text.size(), &found);
  return found == nullptr ? std::to_string(user) : std::string(found->pw_name);
}

std::string explain(const Obstacle& obstacle, const fs::path& path, const std::string& user) {
  const std::string place = obstacle.place.string();
  if (!obstacle.folder && place == path.string()) return fmt::format("user '{}' cannot read {}", user, place);
  return fmt::format("user '{}' cannot {} {}, on the way to {}", user, obstacle.folder ? "enter the folder" : "read",
                     place, path.string());
}

}  // namespace gyre
