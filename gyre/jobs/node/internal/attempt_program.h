#pragma once

#include <string>

namespace gyre::jobs::node::internal {

/// The program of which the processes of attempts are started: `gyre-node` beside `gyre_program`, which has the same
/// verbs for them and starts four times as fast, or `gyre_program` where it stands alone.
std::string attempt_program(const std::string& gyre_program);

}  // namespace gyre::jobs::node::internal
