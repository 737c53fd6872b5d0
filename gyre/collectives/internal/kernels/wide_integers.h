#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gyre/collectives/internal/kernels/reduction_plan.h"

// The kernels combine integers that are scaled afterwards in int64, so that a sum of bytes does not overflow before it
// is averaged. Over links partial sums travel, so there the ranks exchange int64 to the same end, and one host and
// several give the same answer.

namespace gyre::collectives::internal {

/// Whether the plan scales integers of fewer than 8 bytes.
bool needs_wide_integers(const ReductionPlan& plan);

/// The plan for the widened elements.
ReductionPlan widened(ReductionPlan plan);

/// `elements` of an integer `type`, each as an int64.
std::vector<std::int64_t> widen_integers(std::span<const std::byte> elements, DataType type);

/// The nearest value of `type` for each; `elements` has room for all.
void narrow_integers(std::span<const std::int64_t> values, std::span<std::byte> elements, DataType type);

}  // namespace gyre::collectives::internal
