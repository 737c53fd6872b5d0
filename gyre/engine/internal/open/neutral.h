#pragma once

#include <cstddef>
#include <span>

#include "gyre/engine/request.h"

namespace gyre::engine::internal {

/// Fills `values` (elements of `type`) with what changes nothing when it is reduced with others: zeros for a sum or an
/// average, ones for a product, the largest value for a minimum, the smallest for a maximum. Pure.
void fill_with_neutral(std::span<std::byte> values, DataType type, ReduceOperation operation);

}  // namespace gyre::engine::internal
