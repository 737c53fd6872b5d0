#pragma once

#include <memory>

#include "gyre/metrics/pipe.h"

namespace gyre::group {

/// What this process logs goes to the `gyre run --metrics` that has started it, as that of its rank. Null without one,
/// and for a process that another launcher has started from within a rank.
std::shared_ptr<metrics::Logger> metrics_logger_from_environment();

}  // namespace gyre::group
