#pragma once

#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

// Our own property "timeline": each rank writes one next to the job's logs. A job that asks for it has a variable
// (metrics::kJobTimelineVariable), in whose place its nodes put where the timelines go.

void ask_for_timelines(JobSpec& job);
bool asks_for_timelines(const JobSpec& job);

}  // namespace gyre::jobs::spec
