#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/gyre/verb_group.h"

namespace gyre::app {

/// `gyre store serve`, `list`, `cat`, `status` and `members`.
std::unique_ptr<VerbGroup> store_verbs(CLI::App& app);

}  // namespace gyre::app
