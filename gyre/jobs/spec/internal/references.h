#pragma once

#include "gyre/jobs/spec/internal/object_reader.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

/// Warns of each reference to a variable of the service that this job does not have: an input or output directory that
/// is not declared, a mistyped name. Such a variable is empty when the job runs.
void check_references(const ObjectReader& properties, const JobSpec& job);

}  // namespace gyre::jobs::spec
