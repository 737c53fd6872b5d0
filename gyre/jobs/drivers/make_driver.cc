#include "gyre/jobs/drivers/make_driver.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/local/driver.h"
#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/drivers/ssh/driver.h"

namespace gyre::jobs::drivers {

namespace {

std::unique_ptr<Driver> make_local(const DriverOptions& driver_options, const DriverSettings& settings) {
  if (!driver_options.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("driver 'local' has no driverOptions, and '{}' was given", driver_options.begin()->first));
  }
  return std::make_unique<local::LocalDriver>(local::LocalOptions{settings});
}

/// What a service gives to the driver of an engine, in a part of its folder for these options alone.
void fill(EngineOptions& options, const std::string& kind, const DriverOptions& driver_options,
          const DriverSettings& settings) {
  std::string all;
  for (const auto& [name, value] : driver_options) all += fmt::format("{}={}\n", name, value);
  options.folder = settings.folder / fmt::format("{}-{:016x}", kind, xxh3_64(as_bytes(all)));
  options.environment = settings.environment;
  options.job_user = settings.job_user;
  options.logs = {.folder = settings.logs(), .keep_free_bytes = settings.keep_free_bytes};
  options.logger = settings.logger;
  if (!driver_options.contains("lease_seconds")) options.lease = std::max(options.lease, settings.lease);
}

std::unique_ptr<Driver> make_slurm(const DriverOptions& driver_options, const DriverSettings& settings) {
  slurm::SlurmOptions options = slurm::options_from(driver_options);
  fill(options, "slurm", driver_options, settings);
  return std::make_unique<slurm::SlurmDriver>(options);
}

std::unique_ptr<Driver> make_ssh(const DriverOptions& driver_options, const DriverSettings& settings) {
  ssh::SshOptions options = ssh::options_from(driver_options);
  fill(options, "ssh", driver_options, settings);
  options.program = settings.gyre_program;
  std::filesystem::create_directories(options.folder);
  return std::make_unique<ssh::SshDriver>(options);
}

}  // namespace

std::unique_ptr<Driver> make_driver(const std::string& kind, const DriverOptions& options,
                                    const DriverSettings& settings) {
  if (kind == "local") return make_local(options, settings);
  if (kind == "slurm") return make_slurm(options, settings);
  if (kind == "ssh") return make_ssh(options, settings);
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("driver '{}' is not available; this service has the drivers 'local', 'slurm' and 'ssh'", kind));
}

}  // namespace gyre::jobs::drivers
