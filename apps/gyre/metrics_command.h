#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/gyre/verb_group.h"

namespace gyre::app {

/// `gyre metrics …`: the files of `gyre run --metrics`.
std::unique_ptr<VerbGroup> metrics_verbs(CLI::App& app);

}  // namespace gyre::app
