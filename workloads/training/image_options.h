#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace gyre::training {

/// --validation-share, above 0 and below 1: see ImageSource.
void add_validation_share(CLI::App& app, std::optional<double>& share);

}  // namespace gyre::training
