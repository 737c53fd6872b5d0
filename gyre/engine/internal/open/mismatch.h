#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/engine/request.h"

namespace gyre::engine::internal {

/// Empty when all ranks agree; otherwise one message that shows both sides of the first difference.
/// `rank_names`: how the message calls the ranks; empty: by their own numbers.
std::string describe_mismatch(const std::string& name, const std::vector<std::optional<Signature>>& signatures,
                              const std::vector<int>& rank_names = {});

}  // namespace gyre::engine::internal
