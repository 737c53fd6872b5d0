#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "gyre/base/log.h"
#include "gyre/jobs/agent/expansion.h"
#include "gyre/jobs/drivers/driver.h"

namespace gyre::jobs::drivers {

/// What a service gives to each of its drivers.
struct DriverSettings {
  std::filesystem::path folder;
  std::string gyre_program;
  agent::Variables environment;
  std::string job_user;
  std::chrono::milliseconds lease;
  std::chrono::milliseconds margin;
  Logger logger = null_logger();
};

using DriverOptions = std::map<std::string, std::string>;

/// The driver of that kind, "local" or "slurm". Error(kUnsupported) for another kind; Error(kInvalidArgument) names the
/// option that is wrong; Error(kIo).
std::unique_ptr<Driver> make_driver(const std::string& kind, const DriverOptions& options,
                                    const DriverSettings& settings);

}  // namespace gyre::jobs::drivers
