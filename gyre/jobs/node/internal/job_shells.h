#pragma once

#include <vector>

#include "gyre/jobs/node/internal/attempt_task.h"

namespace gyre::jobs::node::internal {

/// Starts this node's remote shell, through which the job's other nodes run commands here, in the job's environment.
/// Returns the port where it listens. Error.
int start_shell(const AttemptTask& task, const Variables& environment);

/// Writes where the shells of all nodes are, for the job's own `ssh`. Error(kIo).
void write_shell_table(const orders::WorkOrder& order, const std::vector<orders::NodeFacts>& all_facts,
                       const NodeFolders& folders);

}  // namespace gyre::jobs::node::internal
