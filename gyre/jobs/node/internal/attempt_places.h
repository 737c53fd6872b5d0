#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::jobs::node::internal {

// The folders and mounts that only the node program's user can make for an attempt, and take away. Nothing here follows
// a path that a job has chosen, or could have put a link into, with more rights than the job's.

/// Through no link; none if it cannot be opened.
struct OpenFolder {
  std::filesystem::path path;
  UniqueFd fd;
};

class AttemptPlaces {
 public:
  /// Both must outlive this object. Error(kInvalidArgument) for an order that no node can carry out.
  AttemptPlaces(const NodeOptions& options, const orders::WorkOrder& order);

  /// Makes all that is missing. AttemptEnds says which place the node cannot use, and why; Error.
  void make() const;
  /// Where logs and outputs lie for those who do not see the job's mounts.
  std::filesystem::path log_folder() const;
  std::map<std::string, std::string> outputs() const;
  /// The service is to be sent the logs.
  bool sends_logs() const;

 private:
  void make_mounts(const std::vector<Mount>& mounts, const char* owner, const std::filesystem::path& root) const;
  std::optional<std::filesystem::path> mount_of(const std::filesystem::path& folder) const;
  void make_folder_below_prefix(const std::string& prefix) const;
  void refuse_what_others_put(const OpenFolder& folder, const std::filesystem::path& name) const;
  void give_alone(const std::filesystem::path& folder) const;
  void write_programs() const;

  const NodeOptions& options_;
  const orders::WorkOrder& order_;
  const NodeFolders folders_;
  const JobEnvironment environment_;
  const MountPlan mounts_;
};

/// Takes away what the job before this one, and an earlier attempt, have left: a job keeps its folder until another
/// comes. Error(kIo).
void clear_node(const orders::WorkOrder& order, const NodeFolders& folders);

/// Takes away what goes with the job: its mounts. Error(kIo).
void remove_mounts_of_job(const orders::WorkOrder& order, const NodeFolders& folders);

}  // namespace gyre::jobs::node::internal
