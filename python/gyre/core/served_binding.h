#pragma once

#include <nanobind/nanobind.h>

#include "python/gyre/core/parameter_worker.h"

namespace gyre::python {

/// The methods of a worker whose servers have the optimizer, and its options.
void bind_served(nanobind::module_& module, nanobind::class_<WorkerHandle>& worker);

}  // namespace gyre::python
