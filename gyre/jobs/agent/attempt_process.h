#pragma once

namespace gyre::jobs::agent {

/// The process of an attempt on a node, which an agent starts as the job's account (ADR 87): does what the task says
/// that it reads from `descriptor`, its only way to the agent. Returns the exit code: 0 once its part is done, or left
/// as it is because the agent has gone. gyre::Error.
int run_attempt_process(int descriptor);

}  // namespace gyre::jobs::agent
