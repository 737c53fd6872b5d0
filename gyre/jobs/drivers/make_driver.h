#pragma once

#include <map>
#include <memory>
#include <string>

#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/drivers/driver_settings.h"

namespace gyre::jobs::drivers {

using DriverOptions = std::map<std::string, std::string>;

/// The driver of that kind, "local" or "slurm". Error(kUnsupported) for another kind; Error(kInvalidArgument) names the
/// option that is wrong; Error(kIo).
std::unique_ptr<Driver> make_driver(const std::string& kind, const DriverOptions& options,
                                    const DriverSettings& settings);

}  // namespace gyre::jobs::drivers
