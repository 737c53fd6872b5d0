#include "gyre/jobs/agent/internal/private_folder.h"

#include <endian.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "gyre/base/acting_as.h"
#include "gyre/base/error.h"
#include "gyre/base/reach.h"

namespace gyre::jobs::agent::internal {

namespace {

namespace fs = std::filesystem;

/// The value of system.posix_acl_access (linux/posix_acl_xattr.h): a version, then entries in the order of their tags.
struct AclEntry {
  std::uint16_t tag;
  std::uint16_t permissions;
  std::uint32_t number;
};
struct Acl {
  std::uint32_t version;
  std::array<AclEntry, 5> entries;
};

constexpr std::uint16_t kAll = 7;
constexpr std::uint32_t kNoNumber = 0xffff'ffff;

Acl acl_of(const UserId& user) {
  const auto entry = [](std::uint16_t tag, std::uint16_t permissions, std::uint32_t number = kNoNumber) {
    return AclEntry{htole16(tag), htole16(permissions), htole32(number)};
  };
  return {.version = htole32(2),
          .entries = {entry(0x01, kAll),             // The owner.
                      entry(0x02, kAll, user.user),  // A named account.
                      entry(0x04, 0),                // The group.
                      entry(0x10, kAll),             // The most that named accounts and groups can have.
                      entry(0x20, 0)}};              // Others.
}

}  // namespace

void open_to_account(const fs::path& folder, const UserId& user) {
  const auto fail = [&] { throw system_error(fmt::format("cannot open {} to its job", folder.string()), errno); };
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) fail();
  const Acl acl = acl_of(user);
  // Sticky: what is root's in there stays where it is.
  if (::fsetxattr(opened.get(), "system.posix_acl_access", &acl, sizeof(acl), 0) == 0) {
    if (::fchmod(opened.get(), S_ISVTX | S_IRWXU | S_IRWXG) != 0) fail();
    return;
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) fail();
  if (::fchown(opened.get(), 0, user.group) != 0 || ::fchmod(opened.get(), S_ISVTX | S_IRWXU | S_IRWXG) != 0) fail();
}

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

}  // namespace gyre::jobs::agent::internal
