#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gyre::jobs::catalog {

/// Names of workspaces, clusters, experiments and jobs: 1 to 64 letters, digits, '-' and '_'. Otherwise
/// Error(kInvalidArgument) that says what is wrong with `what` ("job name").
void check_name(std::string_view name, std::string_view what);

/// Behind the name of a deleted cluster, with its number; no name has it.
constexpr char kDeletedMark = '#';
std::string deleted_name(std::string_view name, std::int64_t id);

}  // namespace gyre::jobs::catalog
