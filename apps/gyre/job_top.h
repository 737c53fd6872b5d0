#pragma once

#include <string>
#include <vector>

#include "apps/gyre/job_place.h"

namespace gyre::app {

/// Shows the ranks of a job of a job server until it ends, across restarts of the server; `once`: as they are. `verb`:
/// how messages begin. Returns 0, however the job ends. gyre::Error.
int watch_job(const std::string& verb, const JobOptions& options, bool once,
              const std::vector<std::string>& environment);

}  // namespace gyre::app
