#pragma once

#include <set>
#include <string>

#include "gyre/jobs/drivers/node_engine.h"

namespace gyre::jobs::drivers {

/// Driver::end_strays(): releases what the engine has of these jobs, but for the attempts `in_hand` and those of
/// another service than `own` (Service::name) that answers where the engine says that it is.
std::string end_strays(NodeEngine& engine, const std::string& own, const std::set<std::string>& jobs,
                       const std::set<std::string>& in_hand);

}  // namespace gyre::jobs::drivers
