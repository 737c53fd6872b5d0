#include "gyre/jobs/drivers/slurm/driver.h"

#include <fmt/format.h>

#include <memory>

#include "gyre/base/error.h"
#include "gyre/jobs/drivers/slurm/engine.h"

namespace gyre::jobs::drivers::slurm {

SlurmDriver::SlurmDriver(const SlurmOptions& options)
    : EngineDriver("slurm", options, std::make_shared<SlurmEngine>(options)) {}

void SlurmDriver::check_job(const spec::JobSpec& job, const spec::ClusterSpec& cluster) const {
  const auto gres = cluster.gyre.driver_options.find("gres");
  if (!job.gpus_per_node || gres == cluster.gyre.driver_options.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("it asks for a number of GPUs (gpusPerNode), and the cluster asks Slurm for '{}' for all of "
                          "its jobs (driverOptions.gres)",
                          gres->second));
}

}  // namespace gyre::jobs::drivers::slurm
