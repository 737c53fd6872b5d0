#include "gyre/jobs/spec/timelines.h"

#include <algorithm>

#include "gyre/metrics/job_file.h"

namespace gyre::jobs::spec {

void ask_for_timelines(JobSpec& job) {
  if (!asks_for_timelines(job)) job.environment_variables.push_back({metrics::kJobTimelineVariable, "asked"});
}

bool asks_for_timelines(const JobSpec& job) {
  return std::ranges::find(job.environment_variables, metrics::kJobTimelineVariable, &EnvironmentVariable::name) !=
         job.environment_variables.end();
}

}  // namespace gyre::jobs::spec
