#include "gyre/jobs/node/internal/attempt_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <system_error>

#include "gyre/base/account.h"
#include "gyre/base/acting_as.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/removal.h"
#include "gyre/jobs/containers/program_files.h"
#include "gyre/jobs/node/internal/attempt_container.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/base_variables.h"
#include "gyre/jobs/node/internal/process_set.h"

namespace gyre::jobs::node::internal {

using orders::is_plain_name;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;

/// Of the node: no job has chosen it, and none can write to the folder above it.
void make_own_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw system_error(fmt::format("cannot make the folder {}", folder.string()), failure.value());
}

void write_program(const fs::path& file, const std::string& command) {
  make_own_folder(file.parent_path());
  const std::string script = fmt::format("#!/bin/sh\nexec {} \"$@\"\n", command);
  write_file_atomically(file, as_bytes(script));
  if (::chmod(file.c_str(), 0755) != 0) throw system_error(fmt::format("cannot write {}", file.string()), errno);
}

/// Filled by the job's account. What others have put there on its behalf (containers that root runs) goes with our
/// rights, through no link, so that the node can take the next job.
void remove_what_a_job_left(const fs::path& folder) {
  remove_mounts(folder);
  try {
    remove_as_its_owner(folder);
  } catch (const Error&) {
    remove_folder(folder);
  }
}

constexpr int kFolderFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct stat status_of(const UniqueFd& folder) {
  struct stat status{};
  if (!folder || ::fstat(folder.get(), &status) != 0) return {};
  return status;
}

mode_t mode_in(const UniqueFd& folder, const fs::path& name) {
  struct stat status{};
  return ::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_mode : 0;
}

/// Everybody may enter it, and nobody else can take away what root has in it.
bool is_roots_alone(const UniqueFd& folder) {
  const struct stat status = status_of(folder);
  if (!folder || status.st_uid != 0) return false;
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return (status.st_mode & S_IXOTH) != 0 && (!others_write || (status.st_mode & S_ISVTX) != 0);
}

/// Whether it was not there and is root's now: on NFS root may be nobody. Error if the disk is full.
bool make_roots_folder(const UniqueFd& folder, const fs::path& name) {
  if (::mkdirat(folder.get(), name.c_str(), 0755) != 0) {
    if (errno == ENOSPC || errno == EDQUOT) throw system_error(fmt::format("cannot make {}", name.string()), errno);
    return false;
  }
  struct stat status{};
  if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_uid == 0) return true;
  ::unlinkat(folder.get(), name.c_str(), AT_REMOVEDIR);
  return false;
}

bool has_rights_of_root(const UniqueFd& folder) {
  const std::string name =
      fmt::format(".gyre-{}-{}", ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count());
  return make_roots_folder(folder, name) && ::unlinkat(folder.get(), name.c_str(), AT_REMOVEDIR) == 0;
}

OpenFolder opened_in(const OpenFolder& folder, const fs::path& name) {
  return {folder.path / name, UniqueFd(::openat(folder.fd.get(), name.c_str(), kFolderFlags))};
}

}  // namespace

AttemptPlaces::AttemptPlaces(const NodeOptions& options, const WorkOrder& order)
    : options_(options),
      order_(order),
      folders_(options.root),
      environment_(job_environment(order, folders_,
                                   base_variables(base_of_job(options, order), options.gyre_program, order, folders_))),
      mounts_(plan_mounts(order, folders_)) {
  check_places(order_, folders_, environment_, mounts_);
}

/// To the job's account, and nobody else.
void AttemptPlaces::give_alone(const fs::path& folder) const {
  if (!options_.user) return;
  fs::permissions(folder, fs::perms::owner_all);
  if (::lchown(folder.c_str(), options_.user->id.user, options_.user->id.group) == 0) return;
  throw system_error(fmt::format("cannot give {} to user {}", folder.string(), options_.user->name), errno);
}

void AttemptPlaces::make() const {
  write_programs();
  make_own_folder(mount_root(order_, folders_));
  make_own_folder(folders_.job(order_.job_name));
  give_alone(folders_.job(order_.job_name));
  make_own_folder(folders_.private_to_job());
  fs::permissions(folders_.private_to_job(), fs::perms::owner_all);
  give_alone(folders_.private_to_job());
  make_own_folder(job_mount_root(order_, folders_));
  make_own_folder(order_.shared_folder);
  give_alone(order_.shared_folder);
  make_mounts(mounts_.cluster, "cluster", mount_root(order_, folders_));
  make_mounts(mounts_.job, "job", job_mount_root(order_, folders_));
  for (const std::string& prefix : environment_.prefixes) make_folder_below_prefix(prefix);
}

void AttemptPlaces::write_programs() const {
  // The real way to other nodes; mpirun and `gyre run` are pointed to it, and scripts find it on their PATH.
  const bool inside = runs_in_container(order_);
  const std::string gyre = inside ? containers::kProgramInContainer : options_.gyre_program;
  const std::string program = inside ? gyre : attempt_program(gyre);
  write_program(folders_.programs() / "ssh", fmt::format("'{}' agent-shell --", program));
  write_program(folders_.fallbacks() / "horovodrun", fmt::format("'{}' run --horovod-compat", gyre));
}

void AttemptPlaces::make_mounts(const std::vector<Mount>& mounts, const char* owner, const fs::path& root) const {
  for (const Mount& mount : mounts) {
    try {
      make_mount(mount, options_.mounts);
    } catch (const Error& error) {
      const std::string name = mount.target.lexically_relative(root).string();
      if (error.code() != ErrorCode::kInvalidArgument || name.starts_with("..")) throw;  // No volume's: our own.
      throw unusable_path(
          order_,
          fmt::format("cannot use mount '{}' of the {}: {}; make the directory on the node, or name another one "
                      "(--mount {}=DIR, or gyreSettings.mounts of the cluster)",
                      name, owner, error.what(), name),
          "mount", name);
    }
  }
}

/// The mount that has `folder`, or is it; nothing: none.
std::optional<fs::path> AttemptPlaces::mount_of(const fs::path& folder) const {
  for (const std::vector<Mount>* mounts : {&mounts_.job, &mounts_.cluster}) {
    for (const Mount& mount : *mounts) {
      const fs::path within = folder.lexically_relative(mount.target);
      if (!within.empty() && *within.begin() != "..") return mount.target;
    }
  }
  return std::nullopt;
}

/// Jobs keep their files on mounts, and in the node's folder of all jobs, where only root may be allowed to write. The
/// job's own folder there, PREFIX/SEGMENT, is made for it if all folders above it belong to root, everybody may enter
/// them, and nobody else can put something in the place of what root has there. Everywhere else the job needs the right
/// itself.
void AttemptPlaces::make_folder_below_prefix(const std::string& prefix) const {
  const fs::path top = fs::path(prefix + "/").lexically_normal().parent_path();
  const std::optional<fs::path> mount = mount_of(top);
  if (!options_.user || (!mount && top != jobs_root(order_, folders_))) return;
  if (order_.path_segment.empty()) return;  // The mount itself is never given away.
  // Where the system grants no mount namespace, mounts are links.
  OpenFolder at = {mount.value_or(top), UniqueFd(::open(mount.value_or(top).c_str(), kFolderFlags & ~O_NOFOLLOW))};
  if (mount && *mount != top) {
    for (const fs::path& part : top.lexically_relative(*mount)) {
      if (!is_roots_alone(at.fd)) return;
      if (S_ISLNK(mode_in(at.fd, part))) refuse_what_others_put(at, part);
      // Where all may make folders, root's is as open, and nobody can take it away.
      const bool for_all = (status_of(at.fd).st_mode & S_IWOTH) != 0;
      if (for_all && make_roots_folder(at.fd, part)) ::fchmodat(at.fd.get(), part.c_str(), 01777, 0);
      at = opened_in(at, part);
    }
  }
  bool made = false;
  for (const fs::path& part : fs::path(order_.path_segment)) {
    if (!is_roots_alone(at.fd)) return;
    made = make_roots_folder(at.fd, part);
    if (!made) refuse_what_others_put(at, part);
    at = opened_in(at, part);
  }
  // If it was there before and is still root's, another node of the job has made it, and is about to do the same.
  if (!made && !is_roots_alone(at.fd)) return;
  // On a mount it is for others to read, as what the job itself makes there; on the node it is the job's alone.
  const UniqueFd own(::openat(at.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return;
  [[maybe_unused]] int ignored = mount ? 0 : ::fchmod(own.get(), S_IRWXU);
  ignored = ::fchown(own.get(), options_.user->id.user, options_.user->id.group);
}

/// In a directory of root's that is open to all, somebody may have been there before root: they could replace whatever
/// lies below. What the job's own account has there is its own affair.
void AttemptPlaces::refuse_what_others_put(const OpenFolder& folder, const fs::path& name) const {
  struct stat status{};
  if (::fstatat(folder.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  const bool own = status.st_uid == options_.user->id.user && S_ISDIR(status.st_mode);
  if (status.st_uid == 0 || own || !has_rights_of_root(folder.fd)) return;
  const fs::path path = folder.path / name;
  const std::string place = resolved(path, mounts_).string();
  throw unusable_path(
      order_,
      fmt::format("cannot make a place for the job: '{0}' is not root's but {1} of '{2}', who could replace there what "
                  "jobs of others write. Move it away: `mv {0} {0}.{2}`",
                  place,
                  S_ISLNK(status.st_mode)   ? "a link"
                  : S_ISDIR(status.st_mode) ? "a folder"
                                            : "a file",
                  name_of_account(status.st_uid)),
      "path", path.string());
}

fs::path AttemptPlaces::log_folder() const { return resolved(environment_.log_folder, mounts_); }

std::map<std::string, std::string> AttemptPlaces::outputs() const {
  std::map<std::string, std::string> outputs;
  for (const OutputPlace& output : environment_.outputs) outputs[output.id] = resolved(output.path, mounts_);
  return outputs;
}

bool AttemptPlaces::sends_logs() const {
  return order_.sends_logs && keeps_logs_on_node(order_, folders_, environment_);
}

void clear_node(const WorkOrder& order, const NodeFolders& folders) {
  // Logs that stay on the node lie beside the job's folder.
  std::string last;
  std::getline(std::ifstream(folders.last_job()), last);
  if (is_plain_name(last)) remove_what_a_job_left(folders.job(last));
  remove_what_a_job_left(folders.job(order.job_name));
  remove_what_a_job_left(folders.private_to_job());
  std::ofstream(folders.last_job()) << order.job_name << '\n';
}

void remove_mounts_of_job(const WorkOrder& order, const NodeFolders& folders) {
  if (!order.jobs_root.empty()) remove_mounts(order.jobs_root);
  const fs::path job_mounts = job_mount_root(order, folders);
  // The folder itself may be one of all nodes, and others may not be done.
  order.job_mount_root.empty() ? remove_folder(job_mounts) : remove_mounts(job_mounts);
  remove_folder(folders.shared(order.job_name));
}

}  // namespace gyre::jobs::node::internal
