#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node {

/// Where everything of one node lies. Batch AI's own root was /mnt/batch/tasks/shared/LS_root.
class NodeFolders {
 public:
  using Path = std::filesystem::path;

  /// `own`: another name of own(), such as one that follows it when it is moved. Empty: none.
  explicit NodeFolders(Path root, Path own = {})
      : root_(std::move(root)), own_(own.empty() ? root_ / "agent" : std::move(own)) {}

  const Path& root() const { return root_; }

  // What jobs see.
  Path mounts() const { return root_ / "mounts"; }                           ///< mount_root() without one
  Path jobs() const { return root_ / "jobs"; }                               ///< jobs_root() without one
  Path job(const std::string& job_name) const { return jobs() / job_name; }  ///< Its folder in there
  /// The job's code, where it came with some; its work folder then.
  Path code(const std::string& job_name) const { return job(job_name) / "code"; }
  // Not in the job's own folder, where it could put something else in the place of what is mounted.
  Path shared(const std::string& job_name) const { return root_ / "shared" / job_name; }  ///< The shared folder again
  Path job_mounts(const std::string& job_name) const {
    return root_ / "job_mounts" / job_name;
  }  ///< job_mount_root() so
  Path host_file(const std::string& job_name) const { return job(job_name) / "hostfile"; }
  /// Programs of ours, first on the job's PATH: `ssh`.
  Path programs() const { return root_ / "bin"; }
  /// Those that stand in for programs that the job may have itself, last on its PATH: `horovodrun`.
  Path fallbacks() const { return programs() / "fallbacks"; }
  /// For the job's account alone: the other nodes' shells and their key, and the sockets of `gyre launch`: of one
  /// attempt at a time, and short, because a socket's path has at most 107 bytes.
  Path private_to_job() const { return root_ / "private"; }
  Path shell_table() const { return private_to_job() / "shells.json"; }
  Path start_failure() const { return private_to_job() / "start-failure"; }  ///< As launch_contract::kStartFailureFile
  Path missing_output() const { return private_to_job() / "missing-output"; }  ///< Its kMissingOutputFile
  Path requirements() const { return private_to_job() / "requirements.txt"; }
  Path socket(const std::string& name) const { return private_to_job() / (name + ".sock"); }

  // What only node programs see.
  Path own() const { return own_; }
  Path lock() const { return root_ / "agent.lock"; }
  Path current() const { return own() / "current.json"; }
  Path abandoned() const { return own() / "abandoned.json"; }
  Path container_begun() const { return own() / "container"; }  ///< As long as one of an attempt may be there.
  Path last_job() const { return own() / "last_job"; }
  Path lease() const { return own() / "lease"; }
  Path setup_stamp() const { return own() / "setup.json"; }
  Path records() const { return own() / "records"; }
  /// Log folders of attempts that have ended, by attempt, until the service has them.
  Path undelivered() const { return own() / "logs"; }
  /// Archives of code, SHA256.tar; SHA256.tar.part while one comes.
  Path code_cache() const { return own() / "code"; }
  Path record(const std::string& attempt) const { return records() / (attempt + ".json"); }
  /// Of the `gyre launch` of the cluster's setup task, which is none of the job's.
  Path setup_socket() const { return root_ / "agent" / "setup.sock"; }
  /// All sockets of `gyre launch`.
  std::vector<Path> sockets() const {
    return {setup_socket(), socket("env"), socket("prep"), socket("ranks"), socket("shell")};
  }

 private:
  Path root_;
  Path own_;
};

std::filesystem::path mount_root(const orders::WorkOrder& order,
                                 const NodeFolders& folders);  ///< AZ_BATCHAI_MOUNT_ROOT
std::filesystem::path job_mount_root(const orders::WorkOrder& order, const NodeFolders& folders);  ///< …_JOB_MOUNT_ROOT

std::filesystem::path jobs_root(const orders::WorkOrder& order, const NodeFolders& folders);   ///< …_JOB_TEMP_DIR
std::filesystem::path job_folder(const orders::WorkOrder& order, const NodeFolders& folders);  ///< …_JOB_TEMP

/// $TMPDIR of jobs that have an account of their own: the same on all nodes, and short, because sockets are made in it.
std::filesystem::path temporary_folder(const std::string& attempt);

/// Where the job's processes start: in its code, else in AZ_BATCHAI_JOB_TEMP.
std::filesystem::path work_folder(const orders::WorkOrder& order, const NodeFolders& folders);

// Where the files of a job lie, once the prefix is expanded (reference: Batch AI's own layout).
std::string output_folder(const std::string& prefix, const std::string& segment);      ///< PREFIX/SEGMENT/outputs
std::string log_folder(const std::string& prefix, const std::string& segment);         ///< PREFIX/SEGMENT/stdouterr
std::string kept_files_folder(const std::string& prefix, const std::string& segment);  ///< PREFIX/SEGMENT/work

/// "stdout-job_prep.txt" of a job on one node, "stdout-job_prep-NODE.txt" of one on several. `stream`: "stdout" or
/// "stderr".
std::string preparation_log(const std::string& stream, const orders::WorkOrder& order);
/// So too, of the making of the job's virtual environment: "stdout-environment.txt".
std::string environment_log(const std::string& stream, const orders::WorkOrder& order);
/// "execution.log" or "execution-NODE.log".
std::string execution_log(const orders::WorkOrder& order);

}  // namespace gyre::jobs::node
