#pragma once

#include <string>
#include <vector>

namespace gyre::jobs::node {

/// The process of an attempt on a node, which a node program starts as the job's account (ADR 87): does what the task
/// says that it reads from `descriptor`, its only way to the node program. `environment`: its own, which a container's
/// image has chosen. Returns the exit code: 0 once its part is done, or left as it is because the node program has
/// gone. gyre::Error.
int run_attempt_process(int descriptor, const std::vector<std::string>& environment);

}  // namespace gyre::jobs::node
