#pragma once

#include <optional>
#include <string>

#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::node {

/// Why the cluster cannot run the job in its container, and what to do about it: a clause that follows "the job cannot
/// run on …: ". Nothing where the job has no containerSettings, or where the cluster runs such jobs on the host. Pure.
std::optional<std::string> why_no_container(const spec::JobSpec& job, const spec::ClusterSpec& cluster);

/// What its container's runtime is asked for.
containers::ImageName image_of(const spec::ContainerSettings& settings);

}  // namespace gyre::jobs::node
