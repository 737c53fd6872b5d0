#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace gyre::training {

/// --consistency, checked when it is parsed; see params::parse_consistency().
void add_consistency_option(CLI::App& app, std::string& consistency);

}  // namespace gyre::training
