#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// The arithmetic of the collectives for values that all ranks have already. Independent of the calling thread's
/// floating-point state.
void bind_arithmetic(nanobind::module_& module);

}  // namespace gyre::python
