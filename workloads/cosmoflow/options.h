#pragma once

#include <optional>

#include "workloads/cosmoflow/recipe.h"

namespace gyre::cosmoflow {

/// The recipe, or the exit code with which to end at once (0 after --help, 2 after a mistake, which has been printed).
struct ParsedOptions {
  std::optional<Recipe> recipe;
  int exit_code = 0;
};

/// A configuration file first, then the options, which win.
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace gyre::cosmoflow
