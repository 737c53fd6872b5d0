#pragma once

#include <cstddef>
#include <span>

#include "gyre/collectives/data_type.h"

namespace gyre::collectives {

/// Elements in memory, of one floating-point type.
struct FloatElements {
  std::byte* elements;
  DataType type;
};

/// adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: the sum where they are orthogonal, the average where they
/// are equal. More than two are combined in pairs of neighbours, then pairs of these, and so on; one without a partner
/// waits for the next round.
///
/// result = postscale · adasum(prescale · contributions), all in float64, in an order fixed by their number and
/// `count`, and rounded once to the result's type. By the defaults of IEEE 754, as all arithmetic here: see kernels.h.
/// The contributions are of `type`; they may not be the result. Source: Maleki et al., "Scaling Distributed Training
/// with Adaptive Summation", MLSys 2021. Pure but for the result.
void adaptive_sum(const FloatElements& result, std::span<const std::byte* const> contributions, DataType type,
                  std::size_t count, double prescale, double postscale);

}  // namespace gyre::collectives
