#pragma once

#include <span>

#include "gyre/collectives/data_type.h"

namespace gyre::engine::internal {

/// What rounding takes from a contribution in one step is added to the next one, so that nothing is lost for good:
///
///     x' = prescale · x + e;  x = q(x');  e = x' - q(x')
///
/// where q rounds to `wire` (kBfloat16 or kFloat16), x are `values`, and e `residuals`, as many, zero at the start.
/// Where q gives no finite number, e becomes 0: an overflow is not carried on. Pure; one thread.
/// Source: Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Karimireddy et al., Error feedback fixes
/// SignSGD, ICML 2019.
void compensate(std::span<float> values, std::span<float> residuals, collectives::WireFormat wire,
                float prescale = 1.0F);

}  // namespace gyre::engine::internal
