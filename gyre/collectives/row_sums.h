#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/collectives/collectives.h"

namespace gyre::collectives {

/// The rows of sparse tensors that several ranks contributed, one after the other: row i of `rows` belongs to row
/// `places[i]` of the result. Each row of the result is what reduce() makes of its rows in that order (kernels.h): they
/// are prescaled, added, and scaled at the end; an average divides by `ranks`. A row of the result has at least one.
/// `result` and `rows` are apart. Error(kInvalidArgument) for a place that the result does not have, or has nothing
/// for, and for what reduction_problem() finds.
void add_rows(std::span<std::byte> result, std::span<const std::byte> rows, std::span<const std::int64_t> places,
              std::size_t row_bytes, const Reduction& reduction, int ranks);

}  // namespace gyre::collectives
