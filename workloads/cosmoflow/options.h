#pragma once

#include <optional>

#include "workloads/cosmoflow/recipe.h"

namespace gyre::cosmoflow {

/// Into `recipe`: a configuration file first, then the options, which win. Returns the exit code with which to end at
/// once (0 after --help, 2 after a mistake, which has been printed), or nothing.
std::optional<int> parse_options(int argc, const char* const* argv, Recipe& recipe);

}  // namespace gyre::cosmoflow
