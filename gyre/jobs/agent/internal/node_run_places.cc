// The places that a NodeRun makes for its job: folders, mounts, where logs and outputs go.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/agent/internal/node_run.h"

namespace gyre::jobs::agent::internal {

namespace {

namespace fs = std::filesystem;

/// As of `gyre job wait` where the fault is elsewhere than in the job.
constexpr int kNotTheJobsExitCode = 125;

}  // namespace

ActingAs NodeRun::as_the_job() const { return ActingAs(options_.user ? options_.user->id : own_user()); }

ActingAs NodeRun::as_owner_of_logs() const { return sets_up_ ? ActingAs(own_user()) : as_the_job(); }

/// Of the node: no job has chosen it, and none can write to the folder above it.
void NodeRun::make_own_folder(const fs::path& folder) const {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw system_error(fmt::format("cannot make the folder {}", folder.string()), failure.value());
}

/// Jobs keep their files on mounts, and in the node's folder of all jobs, where only root may be allowed to write. The
/// job's own folder there, PREFIX/SEGMENT, is made for it if all folders above it belong to root and nobody else can
/// change them, so that nobody can have put a link there. Everywhere else the job needs the right itself.
void NodeRun::make_folder_below_prefix(const std::string& prefix) const {
  const fs::path top = fs::path(prefix + "/").lexically_normal().parent_path();
  const auto is_top = [&](const Mount& mount) { return mount.target == top; };
  const bool is_mount = std::ranges::any_of(mounts_.cluster, is_top) || std::ranges::any_of(mounts_.job, is_top);
  if (!options_.user || (!is_mount && top != jobs_root(state_.order, folders_))) return;
  if (state_.order.path_segment.empty()) return;  // The mount itself is never given away.
  UniqueFd at(::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto is_roots = [&] {
    struct stat status{};
    return at && ::fstat(at.get(), &status) == 0 && status.st_uid == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  };
  bool made = false;
  for (const fs::path& part : fs::path(state_.order.path_segment)) {
    if (!is_roots()) return;
    made = ::mkdirat(at.get(), part.c_str(), 0755) == 0;
    at = UniqueFd(::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  // If it was there before and is still root's, another node of the job has made it, and is about to do the same.
  if (!made && !is_roots()) return;
  if (!at) return;
  // On a mount it is for others to read, as what the job itself makes there; on the node it is the job's alone.
  [[maybe_unused]] int ignored = is_mount ? 0 : ::fchmod(at.get(), S_IRWXU);
  ignored = ::fchown(at.get(), options_.user->id.user, options_.user->id.group);
}

void NodeRun::make_mounts(const std::vector<Mount>& mounts, const char* owner, const fs::path& root) const {
  for (const Mount& mount : mounts) {
    try {
      make_mount(mount, options_.mounts);
    } catch (const Error& error) {
      const std::string& node = state_.order.here().id;
      const std::string name = mount.target.lexically_relative(root).string();
      if (error.code() != ErrorCode::kInvalidArgument || name.starts_with("..")) throw;  // No volume's: our own.
      throw AttemptEnds{
          kNotTheJobsExitCode,
          JobError{error_code::kUnusablePath,
                   fmt::format("node {} cannot use mount '{}' of the {}: {}; make the directory on the node, or name "
                               "another one (--mount {}=DIR, or gyreSettings.mounts of the cluster)",
                               node, name, owner, error.what(), name),
                   {{"node", node}, {"mount", name}}}};
    }
  }
}

void NodeRun::make_place(const std::string& what, const std::string& folder) const {
  const ActingAs job = as_the_job();
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure) return;
  const std::string& node = state_.order.here().id;
  throw AttemptEnds{
      kNotTheJobsExitCode,
      JobError{error_code::kUnusablePath,
               fmt::format(
                   "node {} cannot make a place for {}: user '{}', as whom the job runs, cannot make the folder "
                   "{}: {}",
                   node, what, options_.user ? options_.user->name : user_name(::geteuid()), folder, failure.message()),
               {{"node", node}, {"path", folder}}}};
}

void NodeRun::make_places(const JobEnvironment& environment) {
  const WorkOrder& order = state_.order;
  make_own_folder(mount_root(order, folders_));
  make_own_folder(folders_.job(order.job_name));
  if (options_.user) {
    // The job may do there what it likes, but not put something else in the place of what we mount in it.
    open_to_account(folders_.job(order.job_name), options_.user->id);
  }
  make_own_folder(job_mount_root(order, folders_));
  make_own_folder(order.shared_folder);
  if (options_.user) fs::permissions(order.shared_folder, fs::perms::owner_all);
  if (options_.user && ::lchown(order.shared_folder.c_str(), options_.user->id.user, options_.user->id.group) != 0) {
    throw system_error(fmt::format("cannot give {} to user {}", order.shared_folder, options_.user->name), errno);
  }
  make_mounts(mounts_.cluster, "cluster", mount_root(order, folders_));
  make_mounts(mounts_.job, "job", job_mount_root(order, folders_));
  for (const std::string& prefix : environment.prefixes) make_folder_below_prefix(prefix);
  make_place("the job's logs (stdOutErrPathPrefix)", environment.log_folder);
  for (const OutputPlace& output : environment.outputs) {
    make_place(fmt::format("output directory {}", output.id), output.path);
  }
}

void NodeRun::use_private_folders() {
  if (!options_.user || temporary_) return;
  temporary_.emplace(temporary_folder(state_.order.attempt), options_.user->id);
  std::error_code ignored;
  if (options_.mounts != MountMethod::kBind || !fs::is_directory(kSharedMemory, ignored)) return;
  // Seen by this agent and what it starts, in place of everybody's. The nodes of an attempt on one machine see the same
  // one, because ranks of one host exchange their data through it.
  PrivateFolder memory(kSharedMemory / temporary_->path().filename(), options_.user->id);
  if (::mount(memory.path().c_str(), kSharedMemory.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    const int failure = errno;
    memory.leave();
    throw system_error(fmt::format("cannot mount {} at {}", memory.path().string(), kSharedMemory.string()), failure);
  }
  memory_.emplace(std::move(memory));
}

void NodeRun::leave_private_folders() {
  if (memory_) {
    if (::umount2(kSharedMemory.c_str(), MNT_DETACH) != 0) throw system_error("cannot unmount /dev/shm", errno);
    memory_->leave();
    memory_.reset();
  }
  if (temporary_) temporary_->leave();
  temporary_.reset();
}

}  // namespace gyre::jobs::agent::internal
