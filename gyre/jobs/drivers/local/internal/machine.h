#pragma once

#include <optional>
#include <string>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::drivers::local::internal {

/// Error(kResourceExhausted) for a job that asks for more cores or memory than this machine has.
void check_machine(const spec::JobSpec& job);

/// As drivers::Driver::image_digest(). `environment`: of the node programs.
std::optional<std::string> image_digest(const spec::JobSpec& job, const spec::ClusterSpec& cluster,
                                        const node::Variables& environment);

}  // namespace gyre::jobs::drivers::local::internal
