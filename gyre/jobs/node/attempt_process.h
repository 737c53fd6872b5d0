#pragma once

namespace gyre::jobs::node {

/// The process of an attempt on a node, which a node program starts as the job's account (ADR 87): does what the task
/// says that it reads from `descriptor`, its only way to the node program. Returns the exit code: 0 once its part is
/// done, or left as it is because the node program has gone. gyre::Error.
int run_attempt_process(int descriptor);

}  // namespace gyre::jobs::node
