#include "gyre/jobs/service/internal/folder_rights.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "gyre/base/error.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::jobs::service {

namespace {

namespace fs = std::filesystem;

constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;
constexpr const char* kCode = "code";  ///< A folder, where the others are files.

[[noreturn]] void refuse(const fs::path& folder, const std::string& why, const std::string& command) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("folder {} {}, who could read or replace the catalog and the keys of the job service; "
                          "`{}`, or choose another folder with --folder",
                          folder.string(), why, command));
}

void check_folder(const fs::path& folder) {
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) throw system_error(fmt::format("folder {}", folder.string()), errno);
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    refuse(folder, fmt::format("belongs to user '{}'", user_name(status.st_uid)),
           fmt::format("chown {} {}", user_name(::geteuid()), folder.string()));
  }
  // A group may be one person's own. Root's jobs run as another user, who may be in any.
  const mode_t writers = ::geteuid() == 0 ? S_IWGRP | S_IWOTH : S_IWOTH;
  if ((status.st_mode & writers) != 0) {
    refuse(folder, fmt::format("can be changed by other users (mode {:04o})", status.st_mode & 07777),
           fmt::format("chmod go-w {}", folder.string()));
  }
}

/// Not by its name, which may have become another file's meanwhile: nobody else can write to the folder.
std::optional<std::string> make_private(const fs::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || S_ISLNK(status.st_mode)) return std::nullopt;
  if (S_ISDIR(status.st_mode) && path.filename() != kCode) return std::nullopt;  // None of ours.
  if (status.st_uid != ::geteuid() || (status.st_mode & kOfOthers) == 0) return std::nullopt;
  if (::chmod(path.c_str(), status.st_mode & 07777 & ~kOfOthers) != 0) {
    throw system_error(fmt::format("cannot take the rights of other users from {}", path.string()), errno);
  }
  return fmt::format(
      "{} could be read by other users (mode {:04o}) and is private again; if somebody may have read it, "
      "renew the tokens and passwords of its users",
      path.string(), status.st_mode & 07777);
}

}  // namespace

std::vector<std::string> guard_folder(const ServiceOptions& options) {
  const fs::path& folder = options.folder;
  if (fs::create_directories(folder)) {
    fs::permissions(folder, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove);
  }
  check_folder(folder);
  std::vector<std::string> sentences;
  for (const char* name :
       {"catalog.db", "catalog.db-wal", "catalog.db-shm", "catalog.db.lock", "agents.key", kCode, "audit.log"}) {
    if (auto changed = make_private(folder / name)) sentences.push_back(std::move(*changed));
  }
  if (::geteuid() == 0) {
    const node::JobUser user = node::find_job_user(options.job_user);
    if (const auto obstacle = obstacle_before(folder / "nodes", user.id); obstacle && obstacle->folder) {
      sentences.push_back(
          fmt::format("{}: jobs cannot start on this machine's virtual nodes; `chmod o+x {}`, or choose another folder "
                      "with --folder",
                      explain(*obstacle, folder / "nodes", user.name), obstacle->place.string()));
    }
  }
  return sentences;
}

}  // namespace gyre::jobs::service
