#pragma once

#include <cstddef>
#include <span>

#include "gyre/collectives/collectives.h"

namespace gyre::collectives::internal {

/// A Reduction in the terms of the kernels, which know one factor and no average.
struct ReductionPlan {
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  /// For integers, where scaling a contribution rounds: each rank applies it to its own, first.
  double contribution_scale = 1.0;
  /// Applied once to the combined value.
  double scale = 1.0;
  /// How elements travel over links: another format than kNative only for float32.
  WireFormat wire = WireFormat::kNative;

  std::size_t elements_in(std::size_t size_bytes) const { return size_bytes / size_of(type); }
};

/// Error(kInvalidArgument) for a scale or an average of booleans.
ReductionPlan plan_reduction(const Reduction& reduction, int size);

/// One rank's contribution, scaled where the plan says so.
void scale_contribution(const ReductionPlan& plan, std::span<std::byte> buffer);

}  // namespace gyre::collectives::internal
