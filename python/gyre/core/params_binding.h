#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

void bind_params(nanobind::module_& module);

}  // namespace gyre::python
