#include "apps/gyre/job_user.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::app {

void check_job_user(const std::string& name) {
  if (::geteuid() != 0) return;
  try {
    static_cast<void>(jobs::node::find_job_user(name));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--job-user {}: {}", name, error.what()));
  }
}

}  // namespace gyre::app
