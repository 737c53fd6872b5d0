#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/engine/internal/open/order.h"

namespace gyre::engine::internal {

/// How ranks disagree about an operation.
struct Mismatch {
  std::string message;     ///< Both sides of the first difference.
  std::vector<int> ranks;  ///< One of each side, by its own number.
};

/// Nothing when all ranks agree. `rank_names`: how the message calls the ranks; empty: by their own numbers.
std::optional<Mismatch> find_mismatch(const std::string& name, const Signatures& signatures,
                                      const std::vector<int>& rank_names = {});

}  // namespace gyre::engine::internal
