#include "gyre/jobs/drivers/make_driver.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/local/driver.h"
#include "gyre/jobs/drivers/slurm/driver.h"

namespace gyre::jobs::drivers {

namespace {

std::unique_ptr<Driver> make_local(const DriverOptions& driver_options, const DriverSettings& settings) {
  if (!driver_options.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("driver 'local' has no driverOptions, and '{}' was given", driver_options.begin()->first));
  }
  return std::make_unique<local::LocalDriver>(local::LocalOptions{settings});
}

std::unique_ptr<Driver> make_slurm(const DriverOptions& driver_options, const DriverSettings& settings) {
  slurm::SlurmOptions options = slurm::options_from(driver_options);
  std::string all;
  for (const auto& [name, value] : driver_options) all += fmt::format("{}={}\n", name, value);
  options.folder = settings.folder / fmt::format("slurm-{:016x}", xxh3_64(as_bytes(all)));
  options.environment = settings.environment;
  options.job_user = settings.job_user;
  options.logs = {.folder = settings.logs(), .keep_free_bytes = settings.keep_free_bytes};
  options.logger = settings.logger;
  if (!driver_options.contains("lease_seconds")) options.lease = std::max(options.lease, settings.lease);
  return std::make_unique<slurm::SlurmDriver>(options);
}

}  // namespace

std::unique_ptr<Driver> make_driver(const std::string& kind, const DriverOptions& options,
                                    const DriverSettings& settings) {
  if (kind == "local") return make_local(options, settings);
  if (kind == "slurm") return make_slurm(options, settings);
  throw Error(ErrorCode::kUnsupported,
              fmt::format("driver '{}' is not available; this service has the drivers 'local' and 'slurm'", kind));
}

}  // namespace gyre::jobs::drivers
