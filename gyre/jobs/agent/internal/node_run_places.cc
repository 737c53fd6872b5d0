// The places that a NodeRun makes for its job: folders, mounts, where logs and outputs go.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/jobs/agent/internal/node_run.h"

namespace gyre::jobs::agent::internal {

namespace {

namespace fs = std::filesystem;

/// As of `gyre job wait` where the fault is elsewhere than in the job.
constexpr int kNotTheJobsExitCode = 125;

}  // namespace

void NodeRun::make_job_folder(const fs::path& folder, bool for_job) const {
  std::error_code failure;
  if (fs::is_directory(folder, failure)) return;
  if (folder.has_parent_path()) make_job_folder(folder.parent_path(), for_job);
  if (::mkdir(folder.c_str(), 0755) != 0) {
    if (errno == EEXIST) return;  // Another node of the job was faster.
    throw system_error(fmt::format("cannot make the folder {}", folder.string()), errno);
  }
  if (!for_job || !options_.user) return;
  if (::lchown(folder.c_str(), options_.user->id.user, options_.user->id.group) != 0) {
    throw system_error(fmt::format("cannot give {} to user {}", folder.string(), options_.user->name), errno);
  }
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
  try {
    make_job_folder(folder, true);
  } catch (const Error& error) {
    const std::string& node = state_.order.here().id;
    throw AttemptEnds{kNotTheJobsExitCode,
                      JobError{error_code::kUnusablePath,
                               fmt::format("node {} cannot make a place for {}: {}", node, what, error.what()),
                               {{"node", node}, {"path", folder}}}};
  }
}

void NodeRun::make_places(const JobEnvironment& environment) {
  const WorkOrder& order = state_.order;
  make_job_folder(mount_root(order, folders_), false);
  make_job_folder(folders_.job(order.job_name), false);
  if (options_.user) {
    // The job may do there what it likes, but not put something else in the place of what we mount in it.
    fs::permissions(folders_.job(order.job_name), fs::perms::all | fs::perms::sticky_bit);
  }
  make_job_folder(job_mount_root(order, folders_), false);
  make_job_folder(order.shared_folder, true);
  make_mounts(mounts_.cluster, "cluster", mount_root(order, folders_));
  make_mounts(mounts_.job, "job", job_mount_root(order, folders_));
  make_place("the job's logs (stdOutErrPathPrefix)", environment.log_folder);
  for (const OutputPlace& output : environment.outputs) {
    make_place(fmt::format("output directory {}", output.id), output.path);
  }
}

}  // namespace gyre::jobs::agent::internal
