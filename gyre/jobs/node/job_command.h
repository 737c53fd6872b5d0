#pragma once

#include <string>
#include <vector>

#include "gyre/base/file.h"

namespace gyre::jobs::node {

/// Serves one command that a user runs in a job (ADR 137): `channel` leads to the node program, which asks for it with
/// orders::stream_message::kOpen and passes its messages on. Runs it with `environment`, from where we are, in a
/// session of its own. It ends with the channel, and soon after SIGTERM, which says that the job has ended. Returns
/// what this process should exit with. For single-threaded processes.
int serve_job_command(UniqueFd channel, const std::vector<std::string>& environment);

}  // namespace gyre::jobs::node
