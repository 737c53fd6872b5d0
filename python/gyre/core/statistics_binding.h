#pragma once

#include <nanobind/nanobind.h>

#include "gyre/engine/statistics.h"

namespace gyre::python {

/// As plain dictionaries, times in seconds; python/gyre/core/_core.pyi names the keys.
nanobind::dict to_python(const engine::PlanStatistics& statistics);
nanobind::dict to_python(const engine::EngineStatistics& statistics);

}  // namespace gyre::python
