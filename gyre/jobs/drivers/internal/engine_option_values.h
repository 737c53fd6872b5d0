#pragma once

#include <map>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/engine_options.h"

namespace gyre::jobs::drivers {

/// The driverOptions of a cluster: lines of text by name.
using OptionValues = std::map<std::string, std::string>;

/// Error(kInvalidArgument): "driverOptions.NAME of driver 'KIND' WHY".
[[noreturn]] void refuse_option(const std::string& kind, const std::string& name, const std::string& why);
/// Of those that all engines have, sets `name` in `options`; false for another one. Error(kInvalidArgument).
bool set_common_option(const std::string& kind, const std::string& name, const std::string& value,
                       EngineOptions& options);
/// Error(kInvalidArgument) for one that is not a line of text.
void check_lines(const std::string& kind, const OptionValues& values);
const std::vector<std::string>& common_option_names();

}  // namespace gyre::jobs::drivers
