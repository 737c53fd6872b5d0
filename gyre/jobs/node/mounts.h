#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node {

/// A directory that appears at another place.
struct Mount {
  std::filesystem::path source;
  std::filesystem::path target;

  bool operator==(const Mount&) const = default;
};

struct MountPlan {
  std::vector<Mount> cluster;  ///< Below AZ_BATCHAI_MOUNT_ROOT; they stay for the cluster's next job.
  std::vector<Mount> job;      ///< Below AZ_BATCHAI_JOB_MOUNT_ROOT, the shared folder, and jobs_root(); they go with
                               ///< the job. In the order in which they must be made.

  bool operator==(const MountPlan&) const = default;
};

enum class MountMethod {
  kBind,  ///< Root's, in a mount namespace of the node program's own: nothing of it is seen, or left, outside.
  kLink,  ///< Symbolic links.
};

/// Which directory stands in for each volume of the cluster and of the job, by the cluster's table. Entries of the
/// table that no volume names are mounts of the cluster. Error(kInvalidArgument) names the volume that nothing
/// resolves, and the option that does. Pure.
MountPlan plan_mounts(const orders::WorkOrder& order, const NodeFolders& folders);

/// Error(kInvalidArgument) when logs or outputs of the job would lie outside its mounts and its own folders, or their
/// path has a "..", or when they would lie below a mount root and on no mount: they would be lost with the node. Pure.
void check_places(const orders::WorkOrder& order, const NodeFolders& folders, const JobEnvironment& environment,
                  const MountPlan& mounts);

/// What both of them would refuse of a job on whatever node of the cluster, before there is an order. Pure.
void check_mounts(const spec::JobSpec& job, const spec::ClusterSpec& cluster);

/// Where a path of the job lies for those who do not see its mounts. Pure.
std::filesystem::path resolved(const std::filesystem::path& path, const MountPlan& mounts);

/// Whether the job's log folder lies in the node's folder of jobs, on no mount: it goes with the node, unless the
/// service is sent what is in it. Pure.
bool keeps_logs_on_node(const orders::WorkOrder& order, const NodeFolders& folders, const JobEnvironment& environment);

/// Why a directory of this machine cannot stand in for a volume: "there is no directory /data/share". Nothing where it
/// can.
std::optional<std::string> why_not_mountable(const std::filesystem::path& directory);

/// Makes the target show the source; nothing to do where it does already. Error(kInvalidArgument) when the source is
/// not a directory; Error(kIo).
void make_mount(const Mount& mount, MountMethod method);

/// Takes away every mount at and below `folder`. Error(kIo) when one stays.
void remove_mounts(const std::filesystem::path& folder);

/// Takes away every mount below `folder`, then the folder with all it holds. Never reaches into what is mounted:
/// Error(kIo) when a mount stays. A folder that is not there is fine.
void remove_folder(const std::filesystem::path& folder);

/// The folder of a node that nobody will use again, but for logs and outputs that jobs have kept on it: what the
/// folders of its jobs have in Batch AI's places, SUBSCRIPTION/GROUP/workspaces. Error(kIo).
void remove_node(const std::filesystem::path& root);

/// Mount points at and below `folder`, the deepest first.
std::vector<std::filesystem::path> mount_points_below(const std::filesystem::path& folder);

/// Gives this process, which must have one thread only, a mount namespace of its own whose mounts nobody else sees.
/// False where the system does not allow it.
bool enter_own_mount_namespace();

}  // namespace gyre::jobs::node
