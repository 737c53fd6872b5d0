#pragma once

#include <map>
#include <string>

#include "gyre/jobs/drivers/engine_driver.h"
#include "gyre/jobs/drivers/engine_options.h"

namespace gyre::jobs::drivers::slurm {

struct SlurmOptions : EngineOptions {
  std::map<std::string, std::string> sbatch;  ///< Options of sbatch by name: "partition", "account", "time", …
};

/// From the driverOptions of a cluster. Error(kInvalidArgument) names one that is missing, wrong or not known.
SlurmOptions options_from(const std::map<std::string, std::string>& driver_options);

/// Nodes that Slurm gives: each attempt is one job of Slurm.
class SlurmDriver final : public EngineDriver {
 public:
  explicit SlurmDriver(const SlurmOptions& options);

  void check_job(const spec::JobSpec& job, const spec::ClusterSpec& cluster) const override;
};

}  // namespace gyre::jobs::drivers::slurm
