#pragma once

#include <vector>

#include "gyre/engine/statistics.h"
#include "gyre/group/launched_metrics.h"
#include "gyre/metrics/pipe.h"

namespace gyre::engine {

/// What this rank's exchange has cost since it joined, as metrics of a job: bytes, and seconds of waiting, exchange and
/// what of it the training waited for; over all lanes and plans that are known. The names are literals.
std::vector<metrics::Value> metrics_of(const EngineStatistics& statistics);

}  // namespace gyre::engine
