#pragma once

#include "gyre/base/log.h"
#include "gyre/train/engine_exchange.h"

namespace gyre::train {

/// Whether the ranks start from the same `parameters`: those that have a gradient on any rank now must be equal.
/// Otherwise does what the most lenient rank's `response` says, naming the first parameter that differs. Collective,
/// with the same names in the same order; a rank that has joined does not count.
void compare_replicas(GradientExchange& exchange, const NamedTensors& parameters, UnequalReplicas response,
                      const Logger& logger);

}  // namespace gyre::train
