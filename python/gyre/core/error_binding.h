#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// From here on a gyre::Error that leaves a bound function is raised as the class that gyre.errors keeps for its code.
void bind_errors(nanobind::module_& module);

}  // namespace gyre::python
