#include "gyre/jobs/node/internal/base_variables.h"

#include <fmt/format.h>

#include "gyre/base/launch_contract.h"
#include "gyre/jobs/node/internal/attempt_container.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/failure_causes.h"
#include "gyre/jobs/node/remote_shell.h"

namespace gyre::jobs::node::internal {

using orders::WorkOrder;

Variables base_variables(const Variables& base, const std::string& gyre_program, const WorkOrder& order,
                         const NodeFolders& folders) {
  Variables variables = base;
  const std::string path = variables.contains("PATH") ? variables["PATH"] : "/usr/local/bin:/usr/bin:/bin";
  variables["PATH"] = fmt::format("{}:{}:{}", folders.programs().string(), path, folders.fallbacks().string());
  // In a container it is the image's, which may have settings of shells there.
  if (!runs_in_container(order) || !variables.contains("HOME")) variables["HOME"] = job_folder(order, folders);
  variables["GYRE_PROGRAM"] = gyre_program;
  variables[kRemoteShellVariable] = folders.programs() / "ssh";
  variables[kShellTableVariable] = folders.shell_table();
  variables[launch_contract::kJobFolder] = job_folder(order, folders);
  variables[launch_contract::kStartFailureFile] = folders.start_failure();
  variables[launch_contract::kMissingOutputFile] = folders.missing_output();
  variables[launch_contract::kFailedRankFile] = folders.private_to_job() / kFailedRankNote;
  variables[kAttemptVariable] = order.attempt;
  variables[kNodeVariable] = order.here().id;
  return variables;
}

Variables base_of_job(const NodeOptions& options, const WorkOrder& order) {
  Variables variables = options.base;
  if (runs_in_container(order)) return {{"TMPDIR", temporary_folder(order.attempt)}, {"USER", "root"}};
  if (!options.user) return variables;
  variables["USER"] = variables["LOGNAME"] = options.user->name;
  variables["TMPDIR"] = temporary_folder(order.attempt);
  return variables;
}

}  // namespace gyre::jobs::node::internal
