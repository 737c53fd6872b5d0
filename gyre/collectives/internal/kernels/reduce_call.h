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
  DataType type;  ///< Of the sources.
  /// Of the destinations: the same; or kFloat32 where the sources are 16-bit floats; or of integers, one of which is a
  /// partial sum's kInt64 or kInt128, another width.
  DataType result;
  ReduceOperation operation;
  Scaling scaling;
};

/// SIMD over the type itself, or over float32 for 16-bit floats. Everything but what reduce_integers() is for.
void reduce_in_vectors(const ReduceCall& call);

/// Integers that are scaled or change their type, and products of 8 and 64 bits (few processors multiply those in
/// vectors).
void reduce_integers(const ReduceCall& call);

}  // namespace gyre::collectives::internal
