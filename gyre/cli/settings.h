#pragma once

#include <string>
#include <vector>

namespace gyre::cli {

/// The environment's variables that Gyre reads, or passes to its own processes.
const std::vector<std::string>& known_settings();

/// One sentence for each variable of `environment` ("NAME=value") that is called GYRE_… and has no meaning:
/// NAME has no effect: Gyre has no such setting; did you mean ANOTHER?
std::vector<std::string> unknown_settings(const std::vector<std::string>& environment);

}  // namespace gyre::cli
