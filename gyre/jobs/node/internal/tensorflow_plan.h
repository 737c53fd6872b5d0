#pragma once

#include <vector>

#include "gyre/jobs/node/launch_plan.h"

namespace gyre::jobs::node::internal {

/// How many workers and parameter servers node `node` runs; each needs a port.
int tensorflow_processes(const orders::WorkOrder& order, const spec::TensorFlowSettings& settings, int node);

/// Parameter server j is on node j and has that node's first port; workers follow, in blocks; worker 0 is the master.
std::vector<NodePlan> tensorflow_plan(const orders::WorkOrder& order, const spec::TensorFlowSettings& settings,
                                      const std::vector<orders::NodeFacts>& facts);

}  // namespace gyre::jobs::node::internal
