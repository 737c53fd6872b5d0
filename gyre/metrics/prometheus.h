#pragma once

#include <string>

#include "gyre/metrics/series.h"

namespace gyre::metrics {

/// The latest value of each series in Prometheus's text format. Gyre's own are metrics of that name (gyre/cpu_cores is
/// gyre_cpu_cores); a program's are gyre_logged_value and gyre_logged_step with their name, unchanged, as a label. Each
/// has its rank as a label.
std::string prometheus_text(const Run& run);

}  // namespace gyre::metrics
