#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// MetricsLogger, behind gyre.log.
void bind_metrics(nanobind::module_& module);

}  // namespace gyre::python
