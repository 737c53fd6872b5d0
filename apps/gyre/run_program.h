#pragma once

#include <string>
#include <vector>

namespace gyre::app {

/// `gyre run` without staging, and the parameter servers that it starts, as a program called `name` that is given these
/// arguments. Returns its exit code.
int run_program(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace gyre::app
