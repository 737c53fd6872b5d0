#pragma once

#include <cstddef>
#include <span>

#include "gyre/collectives/kernels.h"

namespace gyre::collectives::internal {

/// The arguments of reduce_to_many(), checked.
struct ReduceCall {
  std::span<std::byte* const> destinations;
  std::span<const std::byte* const> sources;
  std::size_t count;
  DataType type;    ///< Of the sources.
  DataType result;  ///< Of the destinations: the same, or kFloat32 where the sources are 16-bit floats.
  ReduceOperation operation;
  Scaling scaling;
};

/// SIMD over the type itself, or over float32 for 16-bit floats. Everything but what reduce_through_int64 is for.
void reduce_in_vectors(const ReduceCall& call);

/// Integers that are scaled, and products of 8 and 64 bits (few processors multiply those in vectors).
void reduce_through_int64(const ReduceCall& call);

}  // namespace gyre::collectives::internal
