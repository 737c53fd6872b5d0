#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/process_set.h"
#include "gyre/jobs/node/node_folders.h"

namespace gyre::jobs::node::internal {

// Why commands of a job may have failed, or will. For the process of an attempt, which sees what the job sees.

/// Where `gyre run` of a job notes the rank that failed first (launch_contract::kFailedRankFile), in the folder that is
/// private to the job.
inline constexpr const char* kFailedRankNote = "failed-rank";

/// How the job's processes have failed, with what may be the cause. `variables`: theirs.
AttemptEnds failure_of_job(const orders::WorkOrder& order, const NodeFolders& folders, const Variables& variables,
                           const ProcessSet::Ended& ended);

/// "; user 'nobody' cannot …", where that may be why these shell lines failed; otherwise empty.
std::string obstacles(const std::vector<std::string>& lines, Variables variables, const orders::WorkOrder& order,
                      int exit_code);

/// "calls apt-get (in job-prep.sh), which needs root, and runs as user 'nobody'; …", if the preparation's `line` does
/// so; otherwise empty.
std::string wish_for_root(const std::string& line, const Variables& variables, const orders::WorkOrder& order,
                          const NodeFolders& folders);

}  // namespace gyre::jobs::node::internal
