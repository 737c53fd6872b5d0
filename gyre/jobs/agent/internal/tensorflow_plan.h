#pragma once

#include <vector>

#include "gyre/jobs/agent/launch_plan.h"

namespace gyre::jobs::agent::internal {

/// How many workers and parameter servers node `node` runs; each needs a port.
int tensorflow_processes(const WorkOrder& order, const spec::TensorFlowSettings& settings, int node);

/// Parameter server j is on node j and has that node's first port; workers follow, in blocks; worker 0 is the master.
std::vector<NodePlan> tensorflow_plan(const WorkOrder& order, const spec::TensorFlowSettings& settings,
                                      const std::vector<NodeFacts>& facts);

}  // namespace gyre::jobs::agent::internal
