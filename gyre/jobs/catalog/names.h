#pragma once

#include <string_view>

namespace gyre::jobs::catalog {

/// Names of workspaces, clusters, experiments and jobs: 1 to 64 letters, digits, '-' and '_'. Otherwise
/// Error(kInvalidArgument) that says what is wrong with `what` ("job name").
void check_name(std::string_view name, std::string_view what);

}  // namespace gyre::jobs::catalog
