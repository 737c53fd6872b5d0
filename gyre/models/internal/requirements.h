#pragma once

#include <cstdint>
#include <string>

#include "gyre/models/layer.h"

namespace gyre::models::internal {

/// Error(kInvalidArgument) with `what` unless `holds`.
void require(bool holds, const std::string& what);

/// Error(kInvalidArgument) that says what is possible.
void require_within(std::int64_t value, std::int64_t low, std::int64_t high, const std::string& name);

/// `layers`, whose sizes have been checked one by one. Error(kInvalidArgument) where together they make a weight of an
/// impossible size.
Layers require_possible_sizes(Layers layers);

}  // namespace gyre::models::internal
