#pragma once

#include <cstddef>
#include <span>

#include "gyre/engine/internal/open/executor.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/request.h"

namespace gyre::engine::internal {

/// Fills `values` (elements of the signature's type) with a contribution that changes nothing when it is scaled and
/// reduced with others: zeros for a sum or an average, the largest value for a minimum, the smallest for a maximum (the
/// other way round if the prescale is negative). For a product ones, which are scaled as the others' values are. Pure.
void fill_with_neutral(std::span<std::byte> values, const Signature& signature);

/// An operation that the others run, in which this rank takes part only because it has joined.
Pending neutral_contribution(const OrderedOperation& operation);

}  // namespace gyre::engine::internal
